"""The scripted application in two lanes."""

from __future__ import annotations

from typing import Any, Final

from acklast import App, Context
from harness import scripted

SIDE: Final = "side"
SIDE_TYPE: Final = "side.v1"

app = App()
app.job(scripted.TYPE, lane=scripted.LANE)(scripted.work)


@app.job(SIDE_TYPE, lane=SIDE)
async def side(payload: dict[str, Any], ctx: Context) -> Any:
    """The same in the other lane."""
    return await scripted.work(payload, ctx)
