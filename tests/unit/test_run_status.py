"""How a run stands against its deadline, and what its watch ends with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from acklast.cli.run_view import forecast, status_line
from acklast.cli.run_watch import exit_of, picture
from acklast.errors import Exit
from acklast.ledger.about import Cancellation, RunAbout, Settings
from acklast.ledger.api import RunView, State
from acklast.ledger.run_status import Status, left_s, per_success, rate_per_s, status

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
CANCELLED = Cancellation(NOW, "duty", "")


def after(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def a_run(deadline: datetime | None = None, *, more: dict[str, Any] | None = None, **counts: int) -> RunView:
    states = {State(name): count for name, count in counts.items()}
    given: dict[str, Any] = {"about": RunAbout(deadline), "at": NOW} | (more or {})
    return RunView("r", None, states, after(-100), 30, **given)


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        (a_run(), Status.EMPTY),
        (a_run(queued=1), Status.OPEN),
        (a_run(after(1), queued=50, more={"ended_lately": 60}), Status.OPEN),
        (a_run(after(1), queued=61, more={"ended_lately": 60}), Status.AT_RISK),
        (a_run(after(30), queued=1), Status.OPEN),
        (a_run(after(10), queued=1), Status.AT_RISK),
        (a_run(NOW, waiting=1), Status.LATE),
        (a_run(NOW, done=1, unresolved=1, more={"ended_at": after(-1)}), Status.FINISHED),
        (a_run(after(-2), done=1, more={"ended_at": after(-1)}), Status.FINISHED_LATE),
        (a_run(after(-2), done=1), Status.FINISHED),
        (a_run(after(-2), claimed=1, more={"cancelled": CANCELLED}), Status.CANCELLING),
        (a_run(after(-2), done=1, cancelled=1, more={"cancelled": CANCELLED}), Status.CANCELLED),
        (a_run(more={"cancelled": CANCELLED}), Status.CANCELLED),
    ],
)
def test_a_run_stands_as_its_deadline_and_its_pace_say(view: RunView, wanted: Status) -> None:
    assert status(view) is wanted


def test_the_pace_is_that_of_the_last_minute_or_of_a_younger_runs_life() -> None:
    old = a_run(queued=30, more={"ended_lately": 120})
    assert (rate_per_s(old), left_s(old)) == (2.0, 15.0)
    young = RunView("r", 9, {State.QUEUED: 30}, after(-0.5), 0, at=NOW, ended_lately=120)
    assert rate_per_s(young) == 4.0
    still = a_run(queued=30)
    assert (rate_per_s(still), left_s(still)) == (None, None)
    assert left_s(a_run(done=30, more={"ended_lately": 30})) is None


def test_attempts_are_counted_for_each_success() -> None:
    assert per_success(a_run(done=20, dead=2)) == 1.5
    assert per_success(a_run(dead=2)) is None


def test_people_are_told_in_one_line() -> None:
    view = a_run(after(1), queued=240, done=20, more={"ended_lately": 60})
    assert status_line(view) == "240 open, at risk, 1/s, about 4 min left, 1.50 attempts per success"
    assert status_line(a_run(done=60)) == "ended, 0.50 attempts per success"
    assert forecast(view)["status"] == "at_risk"


def test_a_terminal_shows_how_far_it_is() -> None:
    text = StringIO()
    about = RunAbout(after(1), "billing", {"team": "rent"})
    view = a_run(queued=10, done=10, more={"ended_lately": 60, "about": about})
    Console(file=text, width=100).print(picture(view))
    told = text.getvalue()
    assert "run r: 10 open, 1/s, about 10 s left, 3.00 attempts per success\n" in told
    assert "done 10, queued 10\n" in told
    assert "owner billing, team=rent" in told


@pytest.mark.parametrize(
    ("view", "code"),
    [
        (a_run(done=1), Exit.OK),
        (a_run(done=1, dead=1), Exit.INCOMPLETE),
        (a_run(done=1, unresolved=1), Exit.INCOMPLETE),
        (a_run(done=1, cancelled=1), Exit.INCOMPLETE),
        (a_run(done=1, more={"cancelled": CANCELLED}), Exit.CANCELLED),
        (a_run(done=1, queued=1), Exit.TIMED_OUT),
        (a_run(), Exit.TIMED_OUT),
    ],
)
def test_a_watch_ends_with_what_the_run_came_to(view: RunView, code: Exit) -> None:
    assert exit_of(view) is code


def test_an_empty_owner_is_refused_and_not_passed_over() -> None:
    with pytest.raises(ValueError, match="owner"):
        Settings(owner="").applied(RunAbout(owner="billing"))
    assert Settings().applied(RunAbout(owner="billing")).owner == "billing"
