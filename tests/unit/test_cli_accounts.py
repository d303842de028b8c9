"""What people read: a job's timeline, a run's proof line, an enqueue's summary."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from acklast.cli.jobs import tell
from acklast.cli.order import Source
from acklast.cli.output import plain
from acklast.cli.proof import progress, proof
from acklast.cli.runs import account
from acklast.cli.tally import MEANINGS, Tally
from acklast.cli.timeline import Moment, timeline
from acklast.errors import Exit
from acklast.ledger.api import AttemptView, JobView, LetterView, RunView, State
from acklast_topology.items import Enqueued, Fate
from acklast_topology.job import Job

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


DONE = JobView(
    lane="cleanup",
    key="r1:[red]7",
    state=State.DONE,
    type="cleanup.v1",
    run="r1",
    fence=2,
    attempts=2,
    rate_limited=3,
    ambiguous=True,
    reason=None,
    result={"removed": 4},
    worker="host-1",
    version="1.0",
    published_at=at(0),
    enqueued_at=at(1),
    claimed_at=at(10),
    available_at=at(9),
    effect_at=at(11),
    recorded_at=at(12),
    settled_at=at(12),
    deadline=None,
    history=(AttemptView(1, 1, "transient", "http_500", "try later", at(2), at(3), "host-0", "0.9"),),
)
LETTER = LetterView(
    5, "cleanup", "r1:7", "r1", "permanent", "no such house", 1, at(4), at(5), 2, "h", "1.0", "v1-0", None
)


# --- a job's timeline --------------------------------------------------------------------------------


def test_a_life_is_told_in_order() -> None:
    assert timeline(DONE) == [
        Moment(at(0), "published", "the publisher's clock"),
        Moment(at(1), "enqueued", "run r1"),
        Moment(at(2), "attempt 1 started", "by host-0 (0.9), fence 1"),
        Moment(at(3), "attempt 1 transient", "http_500, try later"),
        Moment(at(10), "claimed", "by host-1 (1.0), fence 2"),
        Moment(at(11), "effect", "the handler returned"),
        Moment(at(12), "recorded", "done"),
        Moment(at(12), "settled", "acknowledged to the broker"),
    ]


def test_what_is_still_to_come_is_in_the_timeline() -> None:
    waiting = replace(DONE, state=State.WAITING, available_at=at(60), deadline=at(90))
    assert timeline(waiting)[-2:] == [
        Moment(at(60), "due", "not started before this"),
        Moment(at(90), "deadline", "not started after this"),
    ]


def test_a_dead_letter_says_why() -> None:
    moments = timeline(replace(DONE, letters=(LETTER,)))
    assert Moment(at(5), "dead letter", "no. 5, permanent, no such house, seen 2 times") in moments


def test_a_job_is_told_without_reading_its_key_as_markup() -> None:
    text = StringIO()
    tell(Console(file=text, markup=False, highlight=False, width=120), DONE)
    told = text.getvalue()
    assert "r1:[red]7 in lane cleanup: done" in told
    assert "2030-01-01 12:00:10.000Z" in told
    assert '{"removed": 4}' in told
    assert "rate limited  3 times" in told
    assert "may have had its effect" in told


def test_json_keeps_times_states_and_attempts() -> None:
    document = json.loads(json.dumps(plain(DONE)))
    assert document["state"] == "done"
    assert document["claimed_at"] == "2030-01-01T12:00:10+00:00"
    assert document["history"][0]["outcome"] == "transient"


# --- a run's proof -----------------------------------------------------------------------------------


def run(manifest: int | None, **counts: int) -> RunView:
    return RunView("r1", manifest, {State(name): count for name, count in counts.items()}, NOON, 9)


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (
            run(5, done=3, waiting=1, dead=1),
            "manifest 5 = done 3 + waiting 1 + claimed 0 + queued 0 + dead 1 + unresolved 0 + cancelled 0:"
            " balances",
        ),
        (
            run(5, done=3),
            "manifest 5 != done 3 + waiting 0 + claimed 0 + queued 0 + dead 0 + unresolved 0 + cancelled 0"
            " = 3: 2 missing",
        ),
        (
            run(1, done=1, dead=1),
            "manifest 1 != done 1 + waiting 0 + claimed 0 + queued 0 + dead 1 + unresolved 0 + cancelled 0"
            " = 2: 1 too many",
        ),
        (
            run(None, queued=2),
            "total 2 = done 0 + waiting 0 + claimed 0 + queued 2 + dead 0 + unresolved 0 + cancelled 0:"
            " no manifest to compare with",
        ),
    ],
)
def test_the_proof_line_has_every_state_and_its_verdict(view: RunView, told: str) -> None:
    assert proof(view) == told


def test_progress_says_what_is_left() -> None:
    assert progress(run(3, done=3)) == "ended"
    assert progress(run(3, queued=1, claimed=1, waiting=1)) == "3 open"
    assert progress(run(3, done=1, unresolved=2)) == "ended; 2 unresolved wait for a decision"


def test_the_account_has_every_state_zero_included() -> None:
    document = account(run(3, done=3))
    assert document["counts"] == {
        "done": 3,
        "waiting": 0,
        "claimed": 0,
        "queued": 0,
        "dead": 0,
        "unresolved": 0,
        "cancelled": 0,
    }
    assert document["balanced"] is True


def test_what_was_pruned_is_told_and_still_counted() -> None:
    view = replace(run(5, done=4, dead=1), pruned={State.DONE: 3})
    document = account(view)
    assert document["counts"]["done"] == 4  # type: ignore[index] # of objects
    assert document["pruned"] == {"done": 3, "dead": 0, "cancelled": 0}
    assert (document["total"], document["balanced"]) == (5, True)


# --- an enqueue's summary ----------------------------------------------------------------------------


def told(line: int, key: str | None, fate: Fate, detail: str = "") -> Enqueued:
    return Enqueued(line, Job("cleanup", key, b"{}") if key else None, fate, detail, Source(line))


def test_duplicates_are_fine_and_anything_else_makes_it_incomplete() -> None:
    tally = Tally("r1", "cleanup")
    for fate in (Fate.ACCEPTED, Fate.AGAIN, Fate.DUPLICATE):
        tally.add(told(1, "k", fate))
    exits = [tally.exit]
    tally.add(told(2, "k", Fate.REFUSED, "queue full"))
    exits.append(tally.exit)
    assert exits == [Exit.OK, Exit.INCOMPLETE]
    assert tally.rows == 4


def test_an_item_that_is_not_accepted_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally("r1", "cleanup")
    tally.add(told(1, "k1", Fate.ACCEPTED))
    tally.add(told(17, "k2", Fate.RETURNED, "no queue"))
    tally.add(told(18, None, Fate.MALFORMED, "is not UTF-8"))
    assert capsys.readouterr().out == "line 17 k2: returned (no queue)\nline 18: malformed (is not UTF-8)\n"


def test_json_lines_end_with_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally("r1", "cleanup", as_json=True)
    tally.add(told(1, "k1", Fate.ACCEPTED))
    tally.add(told(2, "k2", Fate.CONFLICT, "taken"))
    tally.tell(ended=True)
    item, summary = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert item == {"line": 2, "key": "k2", "fate": "conflict", "detail": "taken"}
    assert summary["counts"] == {fate.value: int(fate in ("accepted", "conflict")) for fate in Fate}
    assert summary["complete"] is False


def test_a_file_that_was_not_read_to_its_end_is_not_complete(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally("r1", "cleanup")
    tally.add(told(1, "k1", Fate.ACCEPTED))
    assert tally.summary(ended=False)["complete"] is False
    tally.tell(ended=False)
    assert "not the whole input" in capsys.readouterr().out


def test_every_fate_has_its_meaning() -> None:
    assert set(MEANINGS) == set(Fate)
