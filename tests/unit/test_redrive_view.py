"""A redrive as commands show it: what whoever looks at one that stands still is told to do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from acklast.cli.redrive_view import tell
from acklast.ledger.redrives import Redrive, RedriveStatus

AT = datetime(2026, 3, 2, 3, 20, tzinfo=UTC)


def running(**more: Any) -> Redrive:
    fields: dict[str, Any] = dict.fromkeys(Redrive.__slots__, 0)
    told = {"id": 7, "lane": "invites", "status": RedriveStatus.RUNNING, "letters": 100, "excluded": {}}
    texts = {"actor": "ops", "login": "ops@host", "reason": "INC-311", "worker": "d1@host:1", "forced": None}
    times = {"planned_at": AT, "started_at": AT, "step_at": AT, "ended_at": None, "now": AT}
    return Redrive(**{**fields, **told, **texts, **times, "steps": [1, 5, 100], "rate_per_s": 5.0, **more})


def last_line(redrive: Redrive) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        tell(console, redrive)
    return captured.get().splitlines()[-1].strip()


@pytest.mark.parametrize(
    ("stands", "begins"),
    [
        ({}, "if nothing is released, acklast lanes tells why; watch it:"),
        ({"released": 1}, "the next step waits for the 1 at work; watch it:"),
        ({"released": 3, "done": 1, "step": 1}, "watch it:"),
        ({"released": 100, "done": 90, "step": 2}, "watch it:"),
        ({"worker": None}, "watch it:"),
    ],
    ids=["nothing released", "step is out", "gets on", "all released", "no daemon"],
)
def test_one_that_stands_still_says_what_it_waits_for(stands: dict[str, Any], begins: str) -> None:
    assert last_line(running(**stands)).startswith(begins)


def test_what_is_not_tried_is_told_by_why_and_what_is_decided_is_not_forgotten() -> None:
    console = Console(width=200)
    with console.capture() as captured:
        tell(console, running(refused=3, decided=True), {"capped": 2, "gone": 1})
    text = captured.get()
    assert "not tried 2 capped, 1 gone" in text
    assert "their jobs are as they were: acklast redrive status 7 --letters, and decide again" in text
    with console.capture() as captured:
        tell(console, running(refused=1, decided=False), {"gone": 1})
    assert "as they were" not in captured.get(), "a dead letter is dead still, and nobody thinks otherwise"
