"""A stand-in for the help desk: a process of its own that imports tickets and counts truthfully.

    python help_desk.py --port 0

It prints one line of JSON with its URL when it is ready. It allows --quota calls in any --period-s seconds,
answers every one with 429 for --outage-s seconds from the call --outage-at on, and knows a key when it comes
again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "property-cleanup"))  # for its meter

from aiohttp import web
from property_api import Meter, plain_key
from support_rows import CLOSED_FROM


@dataclass(slots=True)
class Account:
    """What came under one key, and what was done for it."""

    ticket: str
    imported: int = 0
    statuses: list[int] = field(default_factory=list)


@dataclass(slots=True)
class HelpDesk:
    meter: Meter
    outage_at: int
    outage_s: float
    accounts: dict[str, Account] = field(default_factory=dict)
    calls: int = 0
    keyless: int = 0
    outage_calls: int = 0
    _outage_until: float = 0.0

    async def take(self, request: web.Request) -> web.Response:
        """POST /import"""
        header = request.headers.get("Idempotency-Key")
        self.keyless += header is None
        ticket = await request.json()
        account = self.accounts.setdefault(plain_key(header or ""), Account(ticket["ticket"]))
        wait_s = self._refuse_s(time.monotonic())
        if wait_s:
            account.statuses.append(429)
            return web.json_response({}, status=429, headers={"Retry-After": str(math.ceil(wait_s))})
        closed = int(ticket["account"].removeprefix("A-")) >= CLOSED_FROM
        account.statuses.append(422 if closed else 201)
        if closed:
            return web.json_response({"problem": "the account is closed"}, status=422)
        account.imported += account.imported == 0
        return web.json_response({"number": self.calls}, status=201)

    def _refuse_s(self, now: float) -> float:
        over_s = self.meter.refuse_s(now)
        self.calls += 1
        if self.calls == self.outage_at:
            self._outage_until = now + self.outage_s
        if now < self._outage_until:
            self.outage_calls += 1
            return self._outage_until - now
        return over_s

    async def report(self, _: web.Request) -> web.Response:
        """GET /report: the account of everything that it saw."""
        return web.json_response(
            {
                "calls": self.calls,
                "keyless": self.keyless,
                "outage_calls": self.outage_calls,
                "quota": self.meter.quota,
                "worst_window": self.meter.worst,
                "keys": {key: asdict(account) for key, account in self.accounts.items()},
            }
        )

    def routes(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/import", self.take)
        app.router.add_get("/report", self.report)
        return app


async def serve(desk: HelpDesk, port: int) -> None:
    """Serve on loopback until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(desk.routes(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{runner.addresses[0][1]}"}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description="A local stand-in for a help desk.")
    parser.add_argument("--port", type=int, default=8030, help="0 takes a free one")
    parser.add_argument("--quota", type=int, default=250, help="calls in any window of --period-s")
    parser.add_argument("--period-s", type=float, default=1.0)
    parser.add_argument("--outage-at", type=int, default=2000, help="the call from which it refuses all")
    parser.add_argument("--outage-s", type=float, default=3.0)
    given = parser.parse_args()
    desk = HelpDesk(Meter(given.quota, given.period_s), given.outage_at, given.outage_s)
    asyncio.run(serve(desk, given.port))


if __name__ == "__main__":
    main()
