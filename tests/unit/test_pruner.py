"""The daemon's own pruning: paced, patient with outages, and gone at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from acklast.config.models import Lane
from acklast.errors import LedgerUnavailable
from acklast.ledger.api import Ledger
from acklast.ledger.memory import MemoryLedger
from acklast.ledger.retention import AlreadyPruning, Keep, Keeps, Pruned, Step
from acklast.pruner import LONGEST_PAUSE_S, SHARE, Pruner, keeps_of, pause_s, pruning
from acklast.telemetry.events import Emitter, Event, Notice
from harness import eventually

KEEPS: Keeps = {"cleanup": Keep(10, 20, 20)}
SOON_S = 0.001
NEVER_S = 1e6


class Scripted:
    """A ledger whose passes go as told, one after the other, the last one again and again."""

    def __init__(self, *passes: Exception | list[Pruned]) -> None:
        self._passes = list(passes)
        self.begun = 0
        self.open = 0

    async def prune(self, keeps: Keeps, *, dry_run: bool = False) -> AsyncGenerator[Step, None]:
        one = self._passes.pop(0) if len(self._passes) > 1 else self._passes[0]
        self.begun += 1
        self.open += 1
        try:
            if isinstance(one, Exception):
                raise one
            for n, pruned in enumerate(one, 1):
                yield Step(pruned, n, len(one))
        finally:
            self.open -= 1


class Told:
    """The notices, and how often each came."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def __call__(self, event: Event) -> None:
        assert isinstance(event, Notice)
        self.notices.append(event)

    def named(self, name: str) -> list[Notice]:
        return [one for one in self.notices if one.name == name]


@asynccontextmanager
async def running(ledger: object, told: Told, every_s: float = SOON_S) -> AsyncGenerator[Pruner, None]:
    pruner = Pruner(cast("Ledger", ledger), KEEPS, Emitter(told), every_s=every_s, chance=lambda: 0.5)
    pruner.start()
    yield pruner
    await pruner.close()


def down(*_: Any) -> LedgerUnavailable:
    return LedgerUnavailable("the ledger does not answer: gone", "Wait")


# --- the pace ----------------------------------------------------------------------------------------


def test_a_pass_is_busy_for_a_small_share_of_its_time() -> None:
    pause = pause_s(0.02, 500)
    assert 0.02 / (0.02 + pause) == pytest.approx(SHARE)


def test_a_slow_ledger_is_not_waited_for_without_end() -> None:
    assert pause_s(100.0, 500) == LONGEST_PAUSE_S


@pytest.mark.parametrize(("took", "rows", "pause"), [(0.1, 500, 0.4), (0.7, 500, 0.0), (0.1, 0, 0.0)])
def test_a_rate_is_kept_by_the_pause(took: float, rows: int, pause: float) -> None:
    assert pause_s(took, rows, rate_per_s=1000) == pytest.approx(pause)


def test_the_windows_are_the_lanes() -> None:
    lane = Lane(keep_done_s=400_000, keep_dead_s=500_000, keep_payload_s=300_000)
    assert keeps_of({"a": lane}) == {"a": Keep(400_000, 500_000, 300_000)}


async def test_a_pass_that_is_left_early_leaves_nothing_open() -> None:
    ledger = Scripted([Pruned(done=1), Pruned(done=2)])
    async with aclosing(pruning(cast("Ledger", ledger), KEEPS)) as steps:
        assert (await anext(steps)).pruned == Pruned(done=1)
        assert ledger.open == 1
    assert ledger.open == 0


# --- the loop ----------------------------------------------------------------------------------------


async def test_one_notice_tells_of_a_pass() -> None:
    told = Told()
    ledger = Scripted([Pruned(done=1, letters=2), Pruned(done=3)], [])
    async with running(ledger, told):
        await eventually(lambda: told.named("prune.done"))
    notice = told.named("prune.done")[0]
    assert notice.level == "info"
    assert {name: count for name, count in notice.fields.items() if count} == {
        "done": 4,
        "letters": 2,
        "seconds": notice.fields["seconds"],
    }


async def test_a_pass_that_found_nothing_is_no_news() -> None:
    told = Told()
    async with running(Scripted([Pruned()]), told):
        await eventually(lambda: told.named("prune.done"))
    assert {notice.level for notice in told.named("prune.done")} == {"debug"}


@pytest.mark.parametrize(
    ("error", "name", "level"),
    [
        (down(), "prune.failed", "warning"),
        (RuntimeError("defect"), "prune.failed", "warning"),
        (AlreadyPruning(), "prune.left_to_another", "debug"),
    ],
)
async def test_what_goes_wrong_is_told_and_tried_again(error: Exception, name: str, level: str) -> None:
    told = Told()
    async with running(Scripted(error, [Pruned(done=1)]), told):
        await eventually(lambda: told.named("prune.done"))
    assert [notice.level for notice in told.named(name)] == [level]


async def test_it_ends_at_once_in_the_middle_of_a_pass() -> None:
    told = Told()
    ledger = Scripted([Pruned(done=1)] * 1_000_000)
    async with running(ledger, told) as pruner:
        await eventually(lambda: ledger.open)
        pruner.stop()
        await asyncio.wait_for(pruner.close(), 30)
    assert ledger.open == 0
    assert told.named("prune.done") == []


async def test_it_ends_at_once_in_its_pause() -> None:
    ledger = Scripted([Pruned()])
    async with running(ledger, Told(), NEVER_S) as pruner:
        await asyncio.wait_for(pruner.close(), 30)
    assert ledger.begun == 0


async def test_it_can_be_off() -> None:
    ledger = Scripted([Pruned()])
    async with running(ledger, Told(), 0) as pruner:
        assert [task for task in asyncio.all_tasks() if task.get_name() == "prune"] == []
        pruner.stop()
    assert ledger.begun == 0


async def test_it_prunes_a_ledger() -> None:
    at = [datetime(2026, 1, 1, tzinfo=UTC)]
    clock: Callable[[], datetime] = lambda: at[0]  # noqa: E731 - a value that the test moves
    ledger, told = MemoryLedger(clock), Told()
    await ledger.open_session("one", worker="one:1", version="1", lease_s=1)
    at[0] += timedelta(days=91)
    async with running(ledger, told):
        await eventually(lambda: told.named("prune.done"))
    assert told.named("prune.done")[0].fields["sessions"] == 1
