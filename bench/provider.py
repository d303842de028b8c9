"""A stand-in for a downstream with quotas: its own process, its own clock, its own sliding-window meters.

``python -m bench.provider FASTEST_S SLOWEST_S NAME=COUNT/PERIOD_S...`` prints its port. It answers each
``POST /NAME`` after a time between the two: with 200, or with 429 and Retry-After where the last PERIOD_S
seconds hold COUNT calls already. ``PUT /NAME/SECONDS`` has it refuse all calls for so long. ``GET /`` is
answered with the account of each, ``GET /NAME`` with the time of each call that was served. A call is metered
when its request has arrived, refused or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import random
import sys
import time
from array import array
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Final

_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_REFUSED: Final = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n"
_TICK_S: Final = 0.01


@dataclass(slots=True)
class Quiet:
    """A time without calls that was asked for, and who kept it."""

    until: float
    told_at: float | None = None
    """When the first refusal was answered."""
    due_at: float = 0.0
    """What that answer said: told_at and its Retry-After."""
    after: int = 0
    """Calls from then until they were due again."""
    last_after_s: float = 0.0
    """How long after the answer the last of them came."""
    resumed_s: float | None = None
    """How long after they were due the first call came."""

    def refusal(self, now: float, takes_s: float) -> int:
        """The Retry-After of a call that arrives ``now``."""
        wait_s = math.ceil(self.until - now)
        if self.told_at is None:
            self.told_at = now + takes_s
            self.due_at = self.told_at + wait_s
        return wait_s

    def call(self, now: float) -> None:
        """A call arrives, whatever becomes of it."""
        if self.told_at is None or now < self.told_at:
            return
        if now < self.due_at:
            self.after += 1
            self.last_after_s = now - self.told_at
        elif self.resumed_s is None:
            self.resumed_s = now - self.due_at


@dataclass(slots=True)
class Meter:
    """Counts the calls in every sliding window of ``period_s`` seconds that is open at its beginning."""

    count: int
    period_s: float
    arrivals: int = 0
    over: int = 0
    """Calls that were one too many for their window."""
    refused: int = 0
    worst: int = 0
    stalled_s: float = 0.0
    """The longest that it had to wait for its turn: what arrived then was counted so late."""
    """The most calls in any window."""
    served: array[float] = field(default_factory=lambda: array("d"))
    """When each call arrived that was not refused."""
    quiets: list[Quiet] = field(default_factory=list)
    _window: deque[float] = field(default_factory=deque)

    def call(self, now: float, takes_s: float = 0.0) -> int:
        """Count a call that is answered after ``takes_s``: 0, or the Retry-After with which it is refused."""
        window = self._window
        while window and window[0] <= now - self.period_s:
            window.popleft()
        window.append(now)
        self.arrivals += 1
        self.worst = max(self.worst, len(window))
        retry_after = 0
        if len(window) > self.count:
            self.over += 1
            retry_after = max(1, math.ceil(self.period_s / 2))
        if self.quiets:
            self.quiets[-1].call(now)
            if now < self.quiets[-1].until:
                retry_after = self.quiets[-1].refusal(now, takes_s)
        if retry_after:
            self.refused += 1
        else:
            self.served.append(now)
        return retry_after

    def account(self) -> dict[str, Any]:
        """What it has counted so far."""
        names = ("count", "period_s", "arrivals", "over", "refused", "worst", "stalled_s")
        quiets = [asdict(quiet) for quiet in self.quiets]
        return {**{name: getattr(self, name) for name in names}, "quiets": quiets}


class Provider(asyncio.Protocol):
    """One connection. Requests have no body and come one after the other."""

    def __init__(self, meters: dict[str, Meter], takes_s: tuple[float, float]) -> None:
        self._meters = meters
        self._takes_s = takes_s
        self._transport: asyncio.Transport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for request in requests:
            method, path, _ = request.split(b" ", 2)
            self._answer(method, path.decode().strip("/"))

    def _answer(self, method: bytes, path: str) -> None:
        assert self._transport is not None
        if method == b"POST":
            takes_s = random.uniform(*self._takes_s)  # noqa: S311 - jitter, nothing to guard
            retry_after = self._meters[path].call(time.monotonic(), takes_s)
            answer = _REFUSED % retry_after if retry_after else _OK
            asyncio.get_running_loop().call_later(takes_s, self._transport.write, answer)
            return
        if method == b"PUT":
            name, _, seconds = path.partition("/")
            self._meters[name].quiets.append(Quiet(time.monotonic() + float(seconds)))
        if method == b"GET" and path:
            self._reply(self._meters[path].served.tolist())
        else:
            self._reply({name: meter.account() for name, meter in self._meters.items()})

    def _reply(self, value: Any) -> None:
        assert self._transport is not None
        body = json.dumps(value).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def meter_of(text: str) -> tuple[str, Meter]:
    """``NAME=COUNT/PERIOD_S``"""
    name, _, quota = text.partition("=")
    count, _, period_s = quota.partition("/")
    return name, Meter(int(count), float(period_s))


async def _watch_itself(meters: dict[str, Meter]) -> None:
    """Note how long the meters had to wait for their turn: what arrives meanwhile is counted so late."""
    while True:
        due = time.monotonic() + _TICK_S
        await asyncio.sleep(_TICK_S)
        late_s = time.monotonic() - due
        for meter in meters.values():
            meter.stalled_s = max(meter.stalled_s, late_s)


async def main(takes_s: tuple[float, float], meters: dict[str, Meter]) -> None:
    # A meter that shares a busy machine with its callers would count late, which no provider does for them.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    watching = asyncio.create_task(_watch_itself(meters), name="watch")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Provider(meters, takes_s), "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - its one answer
    await asyncio.gather(watching, server.serve_forever())


if __name__ == "__main__":
    asyncio.run(main((float(sys.argv[1]), float(sys.argv[2])), dict(map(meter_of, sys.argv[3:]))))
