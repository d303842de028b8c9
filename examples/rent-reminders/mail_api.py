"""A stand-in for a mail API: a process of its own that sends nothing and counts truthfully, by its own clock.

    python mail_api.py --port 8025

It prints one line of JSON with its URL when it is ready. It does not remove repeats: a message that comes
twice is sent twice, and ``GET /report`` shows it. So that something happens, it fails in three ways: every so
many calls it sends the message and drops the connection instead of answering, every so many it refuses with a
500 before anything is done, and once it is out of order for a while.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import signal
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import web

MOVED_OUT_EVERY: Final = 50
"""Every so manieth tenant has moved out: 410."""


class Meter:
    """Counts calls in a sliding window, as a provider does."""

    def __init__(self, quota: int, period_s: float) -> None:
        self.quota = quota
        self.period_s = period_s
        self.worst = 0
        """The most calls that any window held, refused ones included."""
        self._seen: deque[float] = deque()

    def refuse_s(self, now: float) -> float:
        """Count a call at ``now``; 0 where it is within the quota, else the seconds until there is room."""
        while self._seen and self._seen[0] <= now - self.period_s:
            self._seen.popleft()
        self._seen.append(now)
        self.worst = max(self.worst, len(self._seen))
        return self._seen[0] + self.period_s - now if len(self._seen) > self.quota else 0.0


@dataclass(slots=True)
class Account:
    """What was asked under one key, and what was done."""

    to: str = ""
    sent: int = 0
    unanswered: int = 0
    statuses: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Faults:
    """When it fails. Counted in admitted calls; 0: never."""

    drop_every: int
    fail_every: int
    outage_at: int
    outage_s: float


@dataclass(slots=True)
class MailApi:
    token: str
    meter: Meter
    faults: Faults
    accounts: dict[str, Account] = field(default_factory=dict)
    calls: int = 0
    keyless: int = 0
    outage_calls: int = 0
    _outage_until: float = 0.0

    async def take(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/messages"""
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _problem(401, "who are you?")
        header = request.headers.get("Idempotency-Key")
        self.keyless += header is None
        account = self.accounts.setdefault(plain_key(header or ""), Account())
        message = await request.json()
        account.to = message["to"]
        status = self._status(message)
        if status == 202:
            account.sent += 1
            if _nth(self.calls, self.faults.drop_every) and request.transport is not None:
                account.unanswered += 1
                request.transport.abort()
        account.statuses.append(status)
        await asyncio.sleep(0.02)
        if status == 429:
            return _problem(429, "over the quota", {"Retry-After": str(math.ceil(self.meter.period_s))})
        return _problem(status, "see the status") if status != 202 else _accepted(len(self.accounts))

    def _status(self, message: dict[str, Any]) -> int:
        now = time.monotonic()
        if self.meter.refuse_s(now):
            return 429
        self.calls += 1
        if self.calls == self.faults.outage_at:
            self._outage_until = now + self.faults.outage_s
        if now < self._outage_until:
            self.outage_calls += 1
            return 503
        if _nth(self.calls, self.faults.fail_every):
            return 500
        if int(re.sub(r"\D", "", message["to"])) % MOVED_OUT_EVERY == 0:
            return 410
        return 202

    async def report(self, request: web.Request) -> web.Response:
        """GET /report"""
        return web.json_response(
            {
                "quota": self.meter.quota,
                "period_s": self.meter.period_s,
                "worst_window": self.meter.worst,
                "calls": self.calls,
                "keyless": self.keyless,
                "outage_calls": self.outage_calls,
                "keys": {key: asdict(account) for key, account in sorted(self.accounts.items())},
            }
        )

    def routes(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/messages", self.take)
        app.router.add_get("/report", self.report)
        return app


def _nth(count: int, every: int) -> bool:
    return bool(every) and count % every == 0


def plain_key(header: str) -> str:
    """The key inside a structured-field string."""
    return unquote(re.sub(r"\\(.)", r"\1", header.strip('"')))


def _accepted(number: int) -> web.Response:
    return web.json_response({"message": f"M-{number}"}, status=202)


def _problem(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"problem": text}, status=status, headers=headers)


async def serve(api: MailApi, port: int) -> None:
    """Serve on loopback until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(api.routes(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description="A local stand-in for a mail API.")
    parser.add_argument("--port", type=int, default=8025, help="0 takes a free one")
    parser.add_argument("--token", default="demo-token-of-the-stand-in")
    parser.add_argument("--quota", type=int, default=100, help="calls in any window of --period-s")
    parser.add_argument("--period-s", type=float, default=1.0)
    parser.add_argument("--drop-every", type=int, default=147, help="every so manieth call gets no answer")
    parser.add_argument("--fail-every", type=int, default=60, help="every so manieth call is a 500")
    parser.add_argument("--outage-at", type=int, default=300, help="the call at which it goes out of order")
    parser.add_argument("--outage-s", type=float, default=2.5)
    given = parser.parse_args()
    faults = Faults(given.drop_every, given.fail_every, given.outage_at, given.outage_s)
    asyncio.run(serve(MailApi(given.token, Meter(given.quota, given.period_s), faults), given.port))


if __name__ == "__main__":
    main()
