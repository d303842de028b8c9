"""The application that publishers in other languages send their jobs to: it says what it was given."""

from __future__ import annotations

from typing import Any, Final

from acklast import App, Context

LANE: Final = "reminders"
TYPE: Final = "rent.reminder.v1"

app = App()


@app.job(TYPE, lane=LANE)
async def remind(payload: dict[str, Any], ctx: Context) -> dict[str, Any]:
    return {"payload": payload, "headers": sorted(ctx.headers)}
