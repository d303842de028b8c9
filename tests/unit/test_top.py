"""``acklast top``: what is put together of the readings, and how it looks on terminals of several sizes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from acklast.cli.lane_why import State
from acklast.cli.queues import Queues
from acklast.cli.top import document, pressed_of
from acklast.cli.top_picture import age, count, picture, rate, shares
from acklast.cli.top_view import BudgetRow, LaneRow, Read, RunRow, Shot, Sort, shot
from acklast.config import Config, load
from acklast.ledger.api import State as Job
from acklast.ledger.backlog import Backlog, Depth, Oldest, OpenRun, Pace
from acklast.ledger.controls import Control, Target
from acklast.ledger.run_status import Status
from acklast.ledger.standing import Pause, Standing
from acklast.ledger.workers import State as Worker
from acklast.outlook.cast import outlook
from acklast.outlook.gather import facts_of
from harness.controls import AT, pause
from harness.why import DAEMON, WORKER

NOW = AT + timedelta(seconds=30)
FILE = """
app = "x:app"
[broker]
url = "amqp://127.0.0.1/"
[ledger]
dsn = "postgresql://127.0.0.1/x"
[lanes.work]
budget = "api"
[lanes.other]
budget = "api"
[lanes.free]
[budgets.api]
quota = "100 per 60 s"
"""


def minutes(number: float) -> datetime:
    return AT + timedelta(minutes=number)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "acklast.toml"
    path.write_text(FILE)
    return load(path, {})


def read(*controls: Control, pauses: dict[str, Pause] | None = None) -> Read:
    """Two daemons with a share of the budget each; one of them serves both of its lanes."""
    one = replace(DAEMON, in_flight=3, held=2, started=30, permits=60, busy=6, rate_per_s=1.0)
    two = replace(one, session=2, worker="two@host:8", permits=40, busy=4, rate_per_s=0.5)
    standing = Standing(
        NOW, 0, {"work": (one, two), "other": (replace(one, started=0),)}, pauses or {}, controls
    )
    depths = [
        Depth("work", "normal", Job.WAITING, "r-1", 4),
        Depth("work", "high", Job.WAITING, None, 1),
        Depth("work", "normal", Job.DEAD, "r-1", 2),
        Depth("work", "normal", Job.QUEUED, "r-1", 900),
        Depth("gone", "normal", Job.UNRESOLVED, None, 1),
    ]
    pace = [
        Pace("work", "r-1", minutes(-20), 900, 900, 900),
        Pace("work", "r-1", minutes(-5), 60, 80, 10),
        Pace("work", None, minutes(-1), 60, 60, 0),
        Pace("work", "r-1", minutes(0), 30, 30, 0),
    ]
    runs = [
        OpenRun("late", {Job.QUEUED: 1, Job.DONE: 9}, 10, minutes(-90), minutes(-5)),
        OpenRun("calm", {Job.QUEUED: 60}, 60, minutes(-90), minutes(600), ended_lately=60),
        OpenRun("r-1", {Job.WAITING: 600, Job.DEAD: 2}, None, minutes(-90), minutes(5), ended_lately=60),
    ]
    oldest = (Oldest("work", "normal", minutes(-2)), Oldest("work", "high", minutes(-1)))
    return Read(standing, (WORKER,), Backlog(NOW, tuple(depths), oldest, tuple(pace), runs=tuple(runs)))


READY = {"work": Queues(11, None), "other": Queues(0, None), "free": Queues(0, None)}


def test_a_lane_is_put_together_of_all_that_is_known(config: Config) -> None:
    found = {row.lane: row for row in shot(config, read(), READY).lanes}
    assert [*found] == ["free", "gone", "other", "work"]
    work = found["work"]
    assert (work.state, work.workers, work.in_flight, work.slots, work.held) == (State.RUNNING, 2, 6, 20, 4)
    assert (work.ready, work.queued, work.waiting, work.dead, work.unresolved) == (11, 900, 5, 2, 0)
    # Of this minute; the share is of ten minutes, so not of that before.
    assert (work.per_s, work.oldest_s) == (1.0, 150.0)
    assert work.error_share == round(10 / 160, 4)
    early = read()
    early = replace(early, backlog=replace(early.backlog, at=AT + timedelta(seconds=12)))
    assert {row.lane: row.per_s for row in shot(config, early, READY).lanes}["work"] == 1.25
    assert (found["gone"].ready, found["gone"].unresolved, found["gone"].error_share) == (None, 1, None)


def test_runs_come_with_those_at_risk_first(config: Config) -> None:
    runs = shot(config, read(), READY).runs
    assert [(run.run, run.status) for run in runs] == [
        ("late", Status.LATE),
        ("r-1", Status.AT_RISK),
        ("calm", Status.OPEN),
    ]
    assert (runs[1].total, runs[0].left_s, runs[0].total) == (602, None, 10)


def test_a_finish_is_what_the_forecast_says(config: Config) -> None:
    found, told = shot(config, read(), READY), read()
    # What the ledger knows to wait for its time is in the queues as well.
    expected = outlook(facts_of(config, told.backlog, told.standing, {"work": 16, "other": 0, "free": 0}))
    [run] = [one for one in expected.runs if one.run == "r-1"]
    row = found.runs[1]
    assert run.finish.likely_s is not None
    assert (row.left_s, row.low_s, row.high_s) == (run.finish.likely_s, run.finish.low_s, run.finish.high_s)
    assert row.binding == run.binding.constraint
    assert row.finish_at == NOW + timedelta(seconds=run.finish.likely_s)
    [lane] = [one for one in expected.lanes if one.lane == "work"]
    assert found.lanes[3].left_s == lane.finish.likely_s


def test_a_budget_is_counted_once_for_each_daemon(config: Config) -> None:
    [budget] = shot(config, read(), READY).budgets
    assert (budget.permits, budget.busy, budget.effective_per_s, budget.used_per_s) == (100, 10, 1.5, 1.0)
    assert (budget.quota, budget.paused_why) == ("100 per 60 s", None)


def test_a_budget_that_is_paused_says_by_whom_and_until_when(config: Config) -> None:
    [paused] = shot(config, read(pause(Target.BUDGET, "api", 60)), READY).budgets
    assert (paused.effective_per_s, paused.paused_why, paused.paused_until) == (0.0, "duty: why", minutes(1))
    [quiet] = shot(config, read(pauses={"api": Pause(minutes(2), "429")}), READY).budgets
    assert (quiet.effective_per_s, quiet.paused_why, quiet.paused_until) == (0.0, "429", minutes(2))
    # The lane alone is paused, and not what it shares with others.
    [shared] = shot(config, read(pause(Target.LANE, "work")), READY).budgets
    assert shared.paused_why is None


def test_only_what_is_asked_for_is_shown(config: Config) -> None:
    found = shot(config, read(), READY, lanes=["work"])
    assert [row.lane for row in found.lanes] == ["work"]
    assert [run.run for run in found.runs] == ["r-1"]
    assert len(found.workers) == 1
    free = shot(config, read(), READY, lanes=["free"])
    assert (free.runs, free.budgets, free.workers) == ((), (), ())


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        (Sort.NEED, "free"),
        (Sort.LANE, "free"),
        (Sort.READY, "work"),
        (Sort.OLDEST, "work"),
        (Sort.RATE, "work"),
        (Sort.ERRORS, "work"),
    ],
)
def test_lanes_are_sorted_by_what_is_asked(config: Config, sort: Sort, first: str) -> None:
    assert shot(config, read(), READY, sort=sort).lanes[0].lane == first


# --- how it looks -----------------------------------------------------------------------------------------

LANE_ROW = LaneRow(
    "reminders", State.RUNNING, "at its quota", "api", 2, 12, 40, 4, 18_200, 7, 312, 2, 15, 95.0, 20.0, 0.0125
)
PAUSED_ROW = replace(
    LANE_ROW,
    lane="invoices-of-the-whole-month-and-of-others",
    state=State.PAUSED,
    why="paused by duty: their database is slow",
)
SHOT = Shot(
    NOW,
    (PAUSED_ROW, LANE_ROW),
    (
        RunRow(
            *("2026-01", Status.LATE, 600, 2000, 15, 2, 600.0, 500.0, 900.0),
            finish_at=minutes(10),
            deadline=minutes(-5),
            binding="budget",
        ),
    ),
    (BudgetRow("api", "100 per 60 s", 1.6, 1.667, 100, 96, minutes(2), "429"),),
    (replace(WORKER, state=Worker.DRAINING, drain_by="duty", drain_reason="new host"),),
)
AT_80 = """\
acklast top  2026-01-01 02:00:30Z  lanes by need

LANE                 STATE     BUSY  READY  WAIT  UNRES  DEAD  OLDEST  RATE  ERR
invoices-of-the-wh…  paused   12/40    18k   312      2    15     95s  20/s   1%
  paused by duty: their database is slow
reminders            running  12/40    18k   312      2    15     95s  20/s   1%

RUN      STATUS  OPEN    OF  DEAD           FINISH  DEADLINE  HELD BACK BY
2026-01  late     600  2000    15  in 10m (8m-15m)    6m ago  budget

BUDGET  QUOTA          USED     OF  PERMITS  PAUSED
api     100 per 60 s  1.6/s  1.7/s   96/100  until 02:02:00Z
  429

WORKER      STATE     VERSION  RELEASE  BUSY  HELD  HEARTBEAT  LANES
one@host:7  draining  1.0      9           0     0    30s ago  work
  asked to drain by duty: new host
"""


def drawn(found: Shot, width: int, height: int | None = None, **more: str) -> list[str]:
    console = Console(file=StringIO(), width=width, record=True, highlight=False)
    console.print(picture(found, width, height, **more))  # type: ignore[arg-type]
    return console.export_text().splitlines()


def test_it_looks_like_this_on_eighty_columns() -> None:
    assert drawn(SHOT, 80) == AT_80.splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 250])
@pytest.mark.parametrize("height", [5, 12, 24, 60])
def test_it_fits_into_any_terminal(width: int, height: int) -> None:
    many = replace(
        SHOT, lanes=SHOT.lanes * 20, runs=SHOT.runs * 30, workers=SHOT.workers * 9, broker="refused"
    )
    lines = drawn(many, width, height, keys="q leaves")
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_what_has_no_room_is_counted() -> None:
    lines = drawn(replace(SHOT, lanes=(LANE_ROW,) * 30), 80, 24, keys="q leaves")
    assert len(lines) == 24
    shown = sum(line.startswith("reminders") for line in lines)
    assert f"and {30 - shown} more" in lines
    assert lines[-1] == "q leaves"
    # The short parts keep their rows.
    assert any(line.startswith("2026-01") for line in lines)


def test_a_server_that_is_away_is_told_and_the_last_that_was_known_stays() -> None:
    lines = drawn(replace(SHOT, ledger="it does not answer", broker="no broker answers"), 80)
    assert lines[1] == "the ledger is away: it does not answer. All below is of then"
    assert lines[2] == "the broker is away: no broker answers"
    assert any(line.startswith("reminders") for line in lines)
    assert "?" in drawn(replace(SHOT, lanes=(replace(LANE_ROW, ready=None),)), 80)[3]


def test_numbers_that_are_not_counted_yet_are_told(config: Config) -> None:
    early = read()
    found = shot(config, replace(early, backlog=replace(early.backlog, complete=False)), READY)
    assert drawn(found, 80)[1] == "the ledger still counts its jobs: their numbers and runs are missing"


def test_each_part_gives_way_in_turn() -> None:
    assert shares([5, 3, 3], 20) == [5, 3, 3]
    assert shares([30, 10, 3], 20) == [8, 9, 3]
    assert shares([30, 10, 3], 1) == [2, 2, 2]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9_999, "9999"), (18_204, "18k"), (9_999_999, "9999k"), (10_000_000, "10M"), (10**11, "100G")],
)
def test_counts_are_short(number: int, text: str) -> None:
    assert count(number) == text


def test_figures_are_short() -> None:
    assert [age(5), age(300), age(7200)] == ["5s", "5m", "2h"]
    assert [rate(0.0), rate(0.05), rate(1.6), rate(4_200.0)] == ["0/s", "3.0/m", "1.6/s", "4,200/s"]


def test_an_arrow_is_no_escape() -> None:
    assert [pressed_of(text) for text in ("q", "Q", "\x1b", "\x1b[A", "ss", "x")] == [
        "q",
        "q",
        "q",
        "",
        "ss",
        "",
    ]


def test_json_has_all_of_it() -> None:
    told = document(SHOT)
    assert {*told} == {"at", "lanes", "runs", "budgets", "workers", "complete", "ledger", "broker"}
    assert told["lanes"][0]["state"] == "paused"
    assert told["runs"][0]["deadline"] == "2026-01-01T01:55:00+00:00"
