"""What a forecast goes by, out of what the ledger and the daemons say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any, Final

import pytest

from acklast.config import Config
from acklast.errors import LedgerUnavailable
from acklast.ledger.api import State
from acklast.ledger.backlog import Backlog, Depth, Oldest, OpenRun, Pace
from acklast.ledger.controls import Control, Kind, Target
from acklast.ledger.presence import Session, Stop
from acklast.ledger.standing import DaemonView, Pause, Standing
from acklast.outlook.binding import Binding, Constraint
from acklast.outlook.cast import Basis, Finish, Outlook, Prospect, outlook
from acklast.outlook.facts import Facts, Minute, Open
from acklast.outlook.gather import counted, facts_of
from acklast.outlook.samples import MOST_RUNS, outlook_samples, reckoned
from acklast.telemetry import catalogue as of

AT: Final = datetime(2030, 1, 1, 12, 0, 20, tzinfo=UTC)
TOP: Final = AT.replace(second=0)
CONFIG: Final = Config.model_validate(
    {
        "app": "handlers:app",
        "state_dir": "/nowhere",
        "broker": {"urls": ["amqp://localhost/"]},
        "ledger": {"dsn": "postgresql://localhost/x"},
        "budgets": {"api": {"quota": "10 per 1 s", "headroom": 0.2}},
        "lanes": {"a": {"budget": "api", "concurrency": 8, "weight": 3, "fair_by": "run"}, "b": {}},
    }
)
VIEW: Final = DaemonView(
    session=1,
    worker="w",
    live=True,
    silent_s=0.0,
    heard=0,
    concurrency=8,
    in_flight=5,
    held=3,
    started=20,
    window_s=5.0,
    permits=8,
    busy=4,
    rate_per_s=8.0,
    state="open",
    until=None,
    at=AT,
)
NOBODY: Final = Standing(AT, 0, {}, {}, ())


def facts(backlog: Backlog, standing: Standing = NOBODY, **more: Any) -> Facts:
    return facts_of(CONFIG, backlog, standing, **more)


def depth(state: State, jobs: int, run: str | None = "r", lane: str = "a", priority: str = "normal") -> Depth:
    return Depth(lane, priority, state, run, jobs)


def run(name: str, created_s: float = 0, **more: Any) -> OpenRun:
    return OpenRun(name, {}, created_at=AT + timedelta(seconds=created_s), **more)


def test_the_configuration_says_what_a_lane_may() -> None:
    found = facts(Backlog(AT))
    assert (found.at, found.budgets) == (AT, {"api": 8.0})
    lane = found.lanes["a"]
    assert (lane.budget, lane.weight, lane.in_turns, lane.daemons) == ("api", 3, True, ())
    assert found.lanes["b"].budget is None


def test_open_jobs_are_told_apart_and_the_oldest_run_comes_first() -> None:
    depths = (
        depth(State.QUEUED, 10, "late"),
        depth(State.QUEUED, 5),
        depth(State.QUEUED, 2, priority="high"),
        depth(State.WAITING, 3),
        depth(State.CLAIMED, 4),
        depth(State.DEAD, 100),
        depth(State.UNRESOLVED, 100),
        depth(State.QUEUED, 100, "gone"),
    )
    runs = (run("late"), run("r", -60, deadline=AT), run("gone", cancelled=True))
    found = facts(Backlog(AT, depths, runs=runs))
    assert found.open == [Open("a", "r", 14, 3, 4), Open("a", "late", 10)]
    assert found.deadlines == {"r": AT}


def test_a_retry_whose_time_has_come_waits_for_others_and_no_longer_for_that() -> None:
    depths = (depth(State.QUEUED, 2), depth(State.WAITING, 10))
    there = replace(NOBODY, lanes={"b": (replace(VIEW, in_flight=0, started=0, held=0),)})

    def bound(due: int) -> Binding:
        backlog = Backlog(AT, tuple(replace(one, lane="b") for one in depths))
        backlog = replace(backlog, oldest=(Oldest("b", "normal", ago(60), due),))
        return next(one.binding for one in outlook(facts(backlog, there)).lanes if one.lane == "b")

    assert bound(12).said == "12 wait, and 0 of 8 slots are in use"
    assert bound(2).said == "2 wait, and 0 of 8 slots are in use"
    backlog = Backlog(AT, depths[1:], oldest=(Oldest("a", "normal", ago(60), 10),))
    assert (backlog.not_due("a"), Backlog(AT, depths[1:]).not_due("a")) == (0, 10)


def test_messages_that_no_daemon_has_taken_in_come_last() -> None:
    standing = replace(NOBODY, lanes={"a": (VIEW,)})
    backlog = Backlog(AT, (depth(State.QUEUED, 10),), runs=(run("r"),))
    assert facts(backlog, standing, broker={"a": 12}).open == [Open("a", "r", 10), Open("a", None, 10)]
    assert facts(backlog, standing, broker={"a": 2}).open == [Open("a", "r", 10)]
    assert facts(backlog, standing).open == [Open("a", "r", 10)]


def test_minutes_go_back_to_the_first_in_which_anything_happened() -> None:
    def pace(ago: int, done: int, run: str | None = "r") -> Pace:
        return Pace("a", run, TOP - timedelta(minutes=ago), done, claimed=done + 1, dead=1)

    found = facts(Backlog(AT, pace=(pace(3, 10), pace(1, 5), pace(1, 2, None))))
    assert found.lanes["a"].minutes == [
        Minute(0, 0, 20.0, idle_s=20.0),  # nothing waits: there was nothing to do
        Minute(9, 9, fresh=True, sure=False),
        Minute(0, 0, idle_s=60.0),
        Minute(11, 11, fresh=True, sure=False),
    ]
    assert found.lanes["b"].minutes == []


def ago(seconds: float) -> datetime:
    return AT - timedelta(seconds=seconds)


HOURS_AGO: Final = ago(9000.0)
SOME: Final = (Pace("a", "r", TOP, 20, 20, 0), Pace("a", "r", TOP - timedelta(minutes=1), 5, 6, 0))
WAITED: Final = Backlog(AT, oldest=(Oldest("a", "normal", HOURS_AGO),), pace=SOME)


def worked(standing: Standing, backlog: Backlog = WAITED) -> list[float]:
    return [one.worked_s for one in facts(backlog, standing).lanes["a"].minutes]


def test_a_minute_counts_from_the_start_of_the_first_daemon_of_the_lane() -> None:
    begun = replace(NOBODY, lanes={"a": (VIEW,)}, sessions=(Session(1, ago(25.0)), Session(2, HOURS_AGO)))
    assert worked(begun) == [20.0, 5.0]
    replaced = (Session(1, ago(25.0)), Session(0, HOURS_AGO, ago(40.0)))
    assert worked(replace(begun, sessions=replaced)) == [20.0, 45.0]


def test_a_minute_counts_without_a_pause_of_its_lane_or_budget() -> None:
    there = replace(NOBODY, lanes={"a": (VIEW,)}, sessions=(Session(1, HOURS_AGO),))
    over = (
        Stop(Target.LANE, "a", None, ago(70.0)),
        Stop(Target.BUDGET, "api", ago(30.0), ago(15.0)),
        Stop(Target.LANE, "b", HOURS_AGO, None),
        Stop(Target.BUDGET, "other", HOURS_AGO, None),
    )
    assert worked(replace(there, stops=over)) == [15.0, 40.0]
    now = Control(Target.LANE, "a", Kind.PAUSE, "ann", "", ago(5.0), left_s=None)
    assert worked(replace(there, controls=(now,))) == [15.0, 60.0]


def test_the_first_minute_counts_from_when_the_jobs_of_an_open_run_came() -> None:
    there = replace(NOBODY, lanes={"a": (VIEW,)}, sessions=(Session(1, HOURS_AGO),))
    came = Backlog(AT, (depth(State.CLAIMED, 5),), pace=SOME, runs=(run("r", -40.0), run("old", -9000.0)))
    assert worked(there, came) == [20.0, 20.0]


def test_what_daemons_say_counts_while_they_live() -> None:
    standing = replace(NOBODY, lanes={"a": (VIEW, replace(VIEW, live=False))})
    lane = facts(Backlog(AT), standing).lanes["a"]
    assert (lane.slots, lane.in_flight, lane.starts_per_s) == (8, 5, 4.0)


def test_pauses_and_lowered_limits_are_told_with_their_end() -> None:
    control = Control(Target.BUDGET, "api", Kind.PAUSE, "ann", "a move", AT, until=AT, left_s=30.0)
    lowered = Control(Target.BUDGET, "api", Kind.QUOTA, "ann", "slow", AT, amount=2, period_s=1.0)
    quiet = {"api": Pause(AT + timedelta(seconds=40), "429")}
    found = facts(Backlog(AT), replace(NOBODY, controls=(control, lowered), pauses=quiet))
    lane = found.lanes["a"]
    assert found.budgets == {"api": 2.0}
    assert lane.paused is not None
    assert (lane.paused.left_s, lane.paused.said) == (
        30.0,
        "its budget api was paused by ann until 2030-01-01 12:00:20Z: a move",
    )
    assert lane.quiet is not None
    assert (lane.quiet.left_s, lane.quiet.said) == (
        40.0,
        "the downstream asked for quiet until 2030-01-01 12:01:00Z: 429",
    )


def test_a_lane_that_others_serve_is_there_without_a_budget() -> None:
    found = facts(Backlog(AT), replace(NOBODY, lanes={"theirs": (VIEW,)}))
    assert found.lanes["theirs"].budget is None
    assert found.lanes["theirs"].configured_slots == 8


def test_thousands_of_runs_and_sessions_are_reckoned_at_once() -> None:
    """A daemon does it every quarter of a minute, beside its jobs: it must not grow with their square."""
    names = [f"r{number}" for number in range(4000)]
    backlog = Backlog(
        AT,
        tuple(depth(State.QUEUED, 5, name, lane) for name in names for lane in "ab"),
        pace=tuple(Pace(lane, name, TOP, 1, 1, 0) for name in names for lane in "ab"),
        runs=tuple(run(name, -number, deadline=AT) for number, name in enumerate(names)),
    )
    sessions = tuple(Session(one, ago(3600 - 0.5 * one), ago(3599.9 - 0.5 * one)) for one in range(7000))
    stops = tuple(Stop(Target.LANE, "a", ago(3600 - 7 * one), ago(3599 - 7 * one)) for one in range(500))
    standing = replace(NOBODY, lanes={"a": (VIEW,), "b": (VIEW,)}, sessions=sessions, stops=stops)
    began = process_time()
    found = outlook(facts(backlog, standing))
    assert process_time() - began < 3  # a tenth of that, and a minute where each is held against each
    assert [one.jobs for one in found.lanes] == [20_000, 20_000]
    assert len(found.runs) == 4000


def test_of_a_part_of_the_jobs_nothing_is_told() -> None:
    assert counted(Backlog(AT)) == Backlog(AT)
    with pytest.raises(LedgerUnavailable, match="not counted yet"):
        counted(Backlog(AT, complete=False))


# --- as metrics -------------------------------------------------------------------------------------------


def prospect(name: str | None, likely_s: float | None, deadline: datetime | None = None) -> Prospect:
    finish = Finish(likely_s, likely_s, likely_s, Basis.MEASURED)
    return Prospect("a", name, 1, 1.0, 1.0, finish, Binding(Constraint.LEDGER, ""), deadline)


def test_what_cannot_be_known_has_no_sample() -> None:
    runs = (prospect("r", 10.0, AT + timedelta(seconds=30)), prospect("s", None, AT), prospect("t", 1.0))
    found = list(outlook_samples(Outlook(AT, (prospect(None, 20.0),), runs)))
    assert [(one.metric, one.labels, one.value) for one in found] == [
        (of.LANE_FORECAST, ("a",), 20.0),
        (of.RUN_FORECAST, ("r",), 10.0),
        (of.RUN_DEADLINE, ("r",), 30.0),
        (of.RUN_DEADLINE, ("s",), 0.0),
        (of.RUN_FORECAST, ("t",), 1.0),
    ]


def test_of_many_runs_those_with_the_nearest_deadlines_have_series() -> None:
    runs = tuple(prospect(f"r{number:03}", 1.0) for number in range(100))
    labels = [one.labels[0] for one in outlook_samples(Outlook(AT, (), runs))]
    assert labels == [f"r{number:03}" for number in range(MOST_RUNS)]


def test_what_was_read_once_is_reckoned_by_the_same_function() -> None:
    backlog = Backlog(AT, (depth(State.QUEUED, 80),), runs=(run("r", deadline=AT),))
    paused = Control(Target.LANE, "a", Kind.PAUSE, "ann", "", AT, until=AT, left_s=30.0)
    samples = reckoned(CONFIG, backlog, replace(NOBODY, controls=(paused,)), {"a": 160})
    assert {(one.metric, one.labels): one.value for one in samples} == {
        (of.LANE_FORECAST, ("a",)): 50.0,
        (of.LANE_FORECAST, ("b",)): 0.0,
        (of.RUN_FORECAST, ("r",)): 50.0,  # it takes turns with what no run is known of
        (of.RUN_DEADLINE, ("r",)): 0.0,
    }
