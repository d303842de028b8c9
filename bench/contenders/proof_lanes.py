"""acklast with several lanes, each with a budget of its own: what the proof runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from acklast import App, Context, RateLimited
from bench.caller import Caller

app = App()
_callers: dict[str, Caller] = {}


@dataclass(frozen=True, slots=True)
class Budget:
    """A lane, and the quota that it is paced by."""

    count: int
    period_s: float
    concurrency: int
    """Of each daemon."""
    tells: bool = False
    """Its handler says when the request goes out."""
    burst: int | None = None

    @property
    def backlog(self) -> int:
        """How many jobs to have ready: what four seconds take, at most."""
        return int(min(4 * self.count / self.period_s, 4000)) + 100


BUDGETS: Final = {
    "second": Budget(200, 1.0, 30, tells=True),
    "smooth": Budget(100, 1.0, 20, burst=10),
    "fifth": Budget(40, 0.2, 20, tells=True),
    "hundredth": Budget(20, 0.01, 20),
    "long": Budget(2000, 10.0, 60),
    "wide": Budget(5000, 1.0, 15),
}
"""From 100 to 5,000 calls a second. A permit is out until the answer, 100 ms later on average, so "hundredth"
is full at some 180 calls a second; "wide" goes as fast as the machine does."""


@dataclass(slots=True)
class Payload:
    number: int


def _handler(lane: str, tells: bool) -> Callable[[Payload, Context], Awaitable[None]]:
    async def handle(payload: Payload, context: Context) -> None:
        caller = _callers.get(lane) or _callers.setdefault(lane, Caller(lane))
        retry_after_s = await (caller.call(context.sent) if tells else caller.call())
        if retry_after_s is not None:
            raise RateLimited(retry_after_s)

    return handle


for _lane, _budget in BUDGETS.items():
    app.job(f"{_lane}.v1", lane=_lane)(_handler(_lane, _budget.tells))
