"""Which daemon an operator means."""

from __future__ import annotations

from datetime import timedelta

import pytest

from acklast.cli.workers import NoSuchWorker, cells, meant
from acklast.errors import Exit
from acklast.ledger.workers import State, WorkerView
from acklast.pacing.controls import Refused
from harness.controls import AT


def view(session: int, worker: str, state: State = State.LIVE) -> WorkerView:
    ended_at = AT if state is State.ENDED else None
    return WorkerView(
        session=session,
        instance=worker.partition("@")[0],
        worker=worker,
        version="2026.11",
        release="0.9.0",
        state=state,
        started_at=AT,
        heartbeat_at=AT + timedelta(seconds=5),
        lease_s=15.0,
        lease_left_s=11.0,
        ended_at=ended_at,
        lanes=("mail", "rent"),
        in_flight=3,
        held=7,
        draining_at=None,
        drain_asked_at=None,
        drain_by=None,
        drain_reason=None,
    )


ONE = view(1, "one@host:41")
TWO = view(2, "two@host:42", State.DRAINING)
SAME = view(3, "one@other:41")
OLD = view(4, "old@host:40", State.ENDED)
GONE = view(5, "gone@host:39", State.SILENT)
BEFORE = view(6, "two@host:7", State.ENDED)
ALL = [ONE, TWO, SAME, OLD, GONE, BEFORE]


@pytest.mark.parametrize(
    ("name", "session"),
    [("two", 2), ("two@host:42", 2), ("host:42", 2), ("2", 2), ("one@other:41", 3), ("host:41", 1), ("1", 1)],
)
def test_a_name_means_one_that_lives(name: str, session: int) -> None:
    assert meant(ALL, name).session == session


def test_a_name_of_several_is_refused_with_all_of_them() -> None:
    with pytest.raises(Refused, match=r"2 daemons: one@host:41 \(session 1\), one@other:41 \(session 3\)"):
        meant(ALL, "one")


@pytest.mark.parametrize(
    ("name", "said"), [("old", "old@host:40 ended at 20"), ("gone", "has not been heard of since 20")]
)
def test_one_that_would_not_hear_it_is_refused(name: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        meant(ALL, name)


def test_an_unknown_name_is_told_with_those_that_run() -> None:
    with pytest.raises(NoSuchWorker, match="Those that run are: one@host:41, one@other:41") as caught:
        meant(ALL, "tow")
    assert caught.value.exit is Exit.NOT_FOUND


def test_an_instance_that_is_a_number_comes_before_a_session() -> None:
    assert meant([ONE, view(9, "1@host:43")], "1").session == 9


def test_the_row_has_what_runs_there() -> None:
    row = cells(ONE)
    assert row[:7] == ("one@host:41", "2026.11", "0.9.0", "live", "mail,rent", "3", "7")
    assert row[-1] == "11 s"
    assert cells(GONE)[-1] == "-"
