"""What is said of a run besides its jobs, on every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from acklast.ledger.about import NOTHING, RunAbout, RunDiffers
from acklast.ledger.api import Ledger, ManifestRow
from acklast_topology.items import Manifested
from ledger.worlds import LANE

DEADLINE = datetime(2030, 1, 31, 18, tzinfo=UTC)
FULL = RunAbout(DEADLINE, "billing", {"team": "rent", "kind": "import"})


def a_row(key: str) -> ManifestRow:
    return ManifestRow(LANE, key, b"f" * 32)


async def about(ledger: Ledger) -> RunAbout:
    run = await ledger.run("r")
    assert run is not None
    return run.about


async def test_a_run_keeps_what_is_said_of_it(ledger: Ledger) -> None:
    await ledger.manifest("r", [a_row("a")], FULL)
    assert await about(ledger) == FULL
    await ledger.manifest("r", [a_row("b")])
    assert await about(ledger) == FULL


async def test_more_may_be_said_later(ledger: Ledger) -> None:
    await ledger.manifest("r", [a_row("a")])
    assert await about(ledger) == NOTHING
    await ledger.manifest("r", [], RunAbout(owner="billing", labels={"team": "rent"}))
    elsewhere = DEADLINE.astimezone(timezone(timedelta(hours=5)))
    await ledger.manifest("r", [], RunAbout(elsewhere, labels={"kind": "import"}))
    assert await about(ledger) == FULL
    assert await ledger.manifest("r", [a_row("a")], FULL) == [Manifested.OPEN]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (RunAbout(DEADLINE + timedelta(hours=1)), "deadline 2030-01-31T18:00:00"),
        (RunAbout(owner="somebody"), "owner 'billing', not 'somebody'"),
        (RunAbout(labels={"team": "mail"}), "label team 'rent', not 'mail'"),
    ],
)
async def test_a_contradiction_is_told_and_promises_nothing(
    ledger: Ledger, other: RunAbout, named: str
) -> None:
    await ledger.manifest("r", [a_row("a")], FULL)
    with pytest.raises(RunDiffers, match=named):
        await ledger.manifest("r", [a_row("b")], other)
    run = await ledger.run("r")
    assert run is not None
    assert (run.manifest, run.total, run.about) == (1, 1, FULL)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"deadline": datetime(2030, 1, 1)}, "no offset"),  # noqa: DTZ001 - what is refused
        ({"owner": " "}, "owner"),
        ({"owner": "a\x00b"}, "owner"),
        ({"labels": {"a b": "c"}}, "label 'a b'"),
        ({"labels": {"a": ""}}, "label 'a'"),
        ({"labels": {f"l{n}": "x" for n in range(33)}}, "32 labels"),
    ],
)
def test_what_cannot_be_kept_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RunAbout(**given)
