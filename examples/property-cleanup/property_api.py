"""A stand-in for the property API: a process of its own that takes orders and counts truthfully.

    python property_api.py --port 0

It prints one line of JSON with its URL when it is ready. It does not remove repeats: an order that comes
twice is done twice, and the report shows it. ``GET /report`` is the account of everything it saw.
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

LEGAL_HOLD_FROM: Final = 90_000
"""Properties from this number on are under legal hold: every order for one is refused."""


class Meter:
    """Counts calls in a sliding window, as a provider does."""

    def __init__(self, quota: int, period_s: float) -> None:
        self.quota = quota
        self.period_s = period_s
        self.worst = 0
        """The most calls, refused ones included, that any window held."""
        self._seen: deque[float] = deque()
        self._taken: deque[float] = deque()

    def refuse_s(self, now: float) -> float:
        """Count a call at ``now``; 0 where it is within the quota, else the seconds until there is room."""
        self._forget(self._seen, now)
        self._seen.append(now)
        self.worst = max(self.worst, len(self._seen))
        self._forget(self._taken, now)
        if len(self._taken) >= self.quota:
            return self._taken[0] + self.period_s - now
        self._taken.append(now)
        return 0.0

    def _forget(self, calls: deque[float], now: float) -> None:
        while calls and calls[0] <= now - self.period_s:
            calls.popleft()


@dataclass(slots=True)
class Account:
    """What was asked for one key, and what was done for it."""

    property_id: str
    requests: int = 0
    effects: int = 0
    receipts: list[int] = field(default_factory=list)
    said_key: int = 0
    """Requests that carried an Idempotency-Key."""
    at: list[float] = field(default_factory=list)
    """When each request came, in seconds since the epoch."""
    statuses: list[int] = field(default_factory=list)


@dataclass(slots=True)
class PropertyApi:
    """The orders, in memory."""

    meter: Meter
    fail_every: int
    latency_s: float
    accounts: dict[str, Account] = field(default_factory=dict)
    admitted: int = 0
    effects: int = 0

    async def order(self, request: web.Request) -> web.Response:
        """POST /properties/{id}/cleanups"""
        property_id = request.match_info["id"]
        header = request.headers.get("Idempotency-Key")
        key = plain_key(header) if header else f"no key, {property_id}"
        account = self.accounts.setdefault(key, Account(property_id))
        account.requests += 1
        account.said_key += header is not None
        account.at.append(round(time.time(), 4))
        response = await self._answer(account)
        account.statuses.append(response.status)
        return response

    async def _answer(self, account: Account) -> web.Response:
        if wait_s := self.meter.refuse_s(time.monotonic()):
            return _problem(429, "over the quota", {"Retry-After": str(math.ceil(wait_s))})
        self.admitted += 1
        if self.fail_every and self.admitted % self.fail_every == 0:
            return _problem(500, "out of order")
        if int(account.property_id.rpartition("-")[2]) >= LEGAL_HOLD_FROM:
            return _problem(422, "under legal hold")
        self.effects += 1
        account.effects += 1
        account.receipts.append(self.effects)
        await asyncio.sleep(self.latency_s)  # the answer can get lost, the order cannot
        return web.json_response({"receipt": account.receipts[-1]}, status=201)

    async def find(self, request: web.Request) -> web.Response:
        """GET /cleanups?key=...: the order that was placed under a key. Asking costs no quota."""
        account = self.accounts.get(request.query.get("key", ""))
        if account is None or not account.receipts:
            return _problem(404, "no such order")
        return web.json_response({"receipt": account.receipts[0], "property_id": account.property_id})

    async def report(self, request: web.Request) -> web.Response:
        """GET /report"""
        return web.json_response(self.account())

    def account(self) -> dict[str, Any]:
        """Every key's account and the totals."""
        statuses = [status for account in self.accounts.values() for status in account.statuses]
        accounts = self.accounts.values()
        return {
            "totals": {
                "requests": sum(account.requests for account in accounts),
                "requests_with_key": sum(account.said_key for account in accounts),
                "effects": self.effects,
                "keys_with_effect": sum(account.effects > 0 for account in accounts),
                "keys_with_repeats": sum(account.effects > 1 for account in accounts),
                "rate_limited": statuses.count(429),
                "failed": statuses.count(500),
                "refused": statuses.count(422),
            },
            "window": {
                "quota": self.meter.quota,
                "period_s": self.meter.period_s,
                "worst": self.meter.worst,
            },
            "keys": {key: asdict(account) for key, account in sorted(self.accounts.items())},
        }

    def routes(self) -> web.Application:
        app = web.Application()
        app.router.add_post(r"/properties/{id:P-\d+}/cleanups", self.order)
        app.router.add_get("/cleanups", self.find)
        app.router.add_get("/report", self.report)
        return app


def plain_key(header: str) -> str:
    """The key inside a structured-field string; a header that is none is the key itself."""
    if len(header) < 2 or not (header[0] == header[-1] == '"'):
        return header
    return unquote(re.sub(r"\\(.)", r"\1", header[1:-1]))


def _problem(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"problem": text}, status=status, headers=headers)


async def serve(api: PropertyApi, port: int) -> None:
    """Serve on loopback until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(api.routes(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    sys.stdout.write(json.dumps({"url": url, "report": f"{url}/report"}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await runner.cleanup()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A local stand-in for the property API.")
    parser.add_argument("--port", type=int, default=8080, help="0 takes a free one")
    parser.add_argument("--quota", type=int, default=100, help="calls in any window of --period-s")
    parser.add_argument("--period-s", type=float, default=1.0)
    parser.add_argument("--fail-every", type=int, default=97, help="every so manieth call is a 500; 0: none")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="from an order's effect to its answer")
    return parser.parse_args()


def main() -> None:
    given = options()
    api = PropertyApi(Meter(given.quota, given.period_s), given.fail_every, given.latency_ms / 1000)
    asyncio.run(serve(api, given.port))


if __name__ == "__main__":
    main()
