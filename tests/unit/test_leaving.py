"""A drain asks for more time while it gets on, and for none while it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from acklast.leaving import Left, gets_on, leaving
from acklast.notify import Notify
from harness.manager import Manager
from harness.virtual import elapse, virtual

START = Left(running=2, held=5, settled=0, left_s=30.0)
MORE = "EXTEND_TIMEOUT_USEC=15000000"


@pytest.mark.parametrize(
    ("after", "more"),
    [
        (START, True),
        (replace(START, running=0, held=4), True),
        (replace(START, running=0, settled=1), True),
        (replace(START, running=0), False),
        (replace(START, left_s=-1.0), False),
        (replace(START, left_s=-1.0, settled=1), True),
    ],
    ids=["a handler works", "one less", "one settled", "all wait", "past the deadline", "cut and recorded"],
)
def test_more_time_only_for_what_gets_on(after: Left, more: bool) -> None:
    assert gets_on(START, after) is more


def test_it_says_how_far_it_is() -> None:
    assert START.text() == "draining: 2 running, 3 to give back or record, 0 settled, 30 s left"
    late = replace(START, left_s=-2.0, away="the ledger does not answer")
    assert late.text().endswith("0 s left; the ledger does not answer")


def test_the_manager_is_asked_again_and_again_while_a_handler_works(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:

        @virtual
        async def drain() -> None:
            async with leaving(Notify(manager.env), lambda: START):
                await elapse(4.5)

        drain()
        heard = manager.heard()
    assert heard[:3] == ["STOPPING=1", f"STATUS={START.text()}", MORE]
    assert heard.count(MORE) == 1 + 4 + 1
    assert heard[-2:] == ["STATUS=drained; closing connections", MORE]


def test_the_manager_is_asked_once_where_nothing_moves(tmp_path: Path) -> None:
    waiting = replace(START, running=0)
    with Manager(tmp_path) as manager:

        @virtual
        async def drain() -> None:
            async with leaving(Notify(manager.env), lambda: waiting):
                await elapse(9.5)
                assert manager.heard().count(MORE) == 1

        drain()
