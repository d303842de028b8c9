"""acklast with a budget: a lane whose handler calls the provider."""

from __future__ import annotations

from acklast import App, Context, RateLimited
from bench.caller import Caller
from bench.contenders.lane import LANE, NAMES, TYPE, Payload, declare, message

__all__ = ["LANE", "NAMES", "declare", "message"]

app = App()
_callers: list[Caller] = []


@app.job(TYPE, lane=LANE)
async def handle(payload: Payload, context: Context) -> None:
    if not _callers:
        _callers.append(Caller())
    retry_after_s = await _callers[0].call(context.sent)
    if retry_after_s is not None:
        raise RateLimited(retry_after_s)
