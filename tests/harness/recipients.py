"""An application that invites recipients, most of whom a broken import has lost, and some of whom are gone.

A payload is ``{"gone": bool}``. Whether the import has been mended is a file in the test's directory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from acklast import App, Context, Permanent
from harness.scripted import DIRECTORY, LANE

TYPE: Final = "invite.v1"
REASON: Final = "invalid_recipient"
MENDED: Final = "mended"
CALLS: Final = "calls"

app = App()


@app.job(TYPE, lane=LANE)
async def invite(payload: dict[str, Any], ctx: Context) -> None:
    """Invite one recipient."""
    directory = Path(os.environ[DIRECTORY])
    # No fsync, as the effect log has it: there are many of these, and nobody is killed.
    with (directory / CALLS).open("a") as file:
        file.write(f"{ctx.key}\n")
    if payload["gone"]:
        find_who_is_gone()
    find(mended=(directory / MENDED).exists())


def find(*, mended: bool) -> None:
    """Look a recipient up in what was imported."""
    if not mended:
        raise Permanent(REASON)


def find_who_is_gone() -> None:
    """Look a recipient up whom no import brings back."""
    raise Permanent(REASON)
