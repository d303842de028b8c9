"""An application whose handler fails with all that it knows in its exception's text."""

from __future__ import annotations

from typing import Any, Final

from acklast import App
from harness.scripted import LANE, TYPE

app: Final = App()


@app.job(TYPE, lane=LANE)
async def work(payload: dict[str, Any]) -> None:
    """Fail as a client library does that quotes what it sent and got."""
    raise RuntimeError(f"the provider answered: {payload['secret']}")
