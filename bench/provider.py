"""A stand-in for a downstream with a quota: its own process, its own clock, its own sliding-window meter.

``python -m bench.provider COUNT PERIOD_S TAKES_S``: prints its port, then answers each ``POST`` after TAKES_S
seconds, with 200, or with 429 and Retry-After where the last PERIOD_S seconds hold COUNT calls already.
``GET`` answers with the account so far. Every call is metered when its request has arrived, refused or not.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_REFUSED: Final = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n"


def worst_window(times: list[float], period_s: float) -> int:
    """The most calls in any window of ``period_s`` seconds that is open at one end."""
    most = start = 0
    for end, at in enumerate(times):
        while times[start] <= at - period_s:
            start += 1
        most = max(most, end - start + 1)
    return most


@dataclass(slots=True)
class Meter:
    """Counts calls in a sliding window."""

    count: int
    period_s: float
    times: list[float] = field(default_factory=list)
    refused: int = 0
    _window: deque[float] = field(default_factory=deque)

    def call(self, now: float) -> bool:
        """Count a call; whether it is within the quota."""
        window = self._window
        while window and window[0] <= now - self.period_s:
            window.popleft()
        window.append(now)
        self.times.append(now)
        within = len(window) <= self.count
        self.refused += not within
        return within

    def account(self) -> dict[str, Any]:
        times = self.times
        return {
            "arrivals": len(times),
            "refused": self.refused,
            "worst": worst_window(times, self.period_s),
            "last": times[-1] if times else 0.0,
            "by_period": self._by_period(),
        }

    def _by_period(self) -> list[int]:
        """Calls in each period since the first one."""
        counts: list[int] = []
        for at in self.times:
            number = int((at - self.times[0]) / self.period_s)
            counts += [0] * (number + 1 - len(counts))
            counts[number] += 1
        return counts


class Provider(asyncio.Protocol):
    """One connection. Requests have no body and come one after the other."""

    def __init__(self, meter: Meter, takes_s: float) -> None:
        self._meter = meter
        self._takes_s = takes_s
        self._transport: asyncio.Transport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for request in requests:
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        assert self._transport is not None
        if request.startswith(b"GET"):
            body = json.dumps(self._meter.account()).encode()
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return
        within = self._meter.call(time.monotonic())
        answer = _OK if within else _REFUSED % max(1, round(self._meter.period_s / 2))
        takes_s = self._takes_s * random.uniform(0.8, 1.2)  # noqa: S311 - jitter, nothing to guard
        asyncio.get_running_loop().call_later(takes_s, self._transport.write, answer)


async def main(count: int, period_s: float, takes_s: float) -> None:
    meter = Meter(count, period_s)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Provider(meter, takes_s), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - its one answer
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
