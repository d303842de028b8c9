"""The application behind hostile messages: it takes bytes, and sends some jobs through a wait queue."""

from __future__ import annotations

from typing import Final

from acklast import App, Context, Permanent, Transient
from acklast_topology.contract import KEY_HEADER
from harness.scripted import LANE, TYPE

AGAIN: Final = b"again"
"""A body that begins so waits once; and what came back must be what had gone."""

app = App()
_went: dict[str, str] = {}


@app.job(TYPE, lane=LANE)
async def work(payload: bytes, ctx: Context) -> None:
    """Done; at the second attempt where that is asked for."""
    if not payload.startswith(AGAIN):
        return
    headers = repr(sorted((repr(name), repr(value)) for name, value in ctx.headers.items() if _ours(name)))
    if ctx.attempt == 1:
        _went[ctx.key] = headers
        raise Transient("not_now")
    if _went.pop(ctx.key) != headers:
        raise Permanent("changed_on_the_way")


def _ours(name: object) -> bool:
    """Not what the broker adds, nor the key, which a carrier has in its header wherever it was."""
    return name != KEY_HEADER and not str(name).lower().startswith("x-")
