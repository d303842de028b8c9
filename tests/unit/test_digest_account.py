"""The digest example: its configuration is fit, and each thing that it proves can fail."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "marketplace-digest"))

import digest_account as account
from digest_account import Evidence

from acklast.config import load, load_app
from acklast.config.app import load_callable
from acklast.config.schedules import insist_on_runs

HERE = Path(account.__file__).parent


def seen(*statuses: int) -> dict[str, Any]:
    return {"sent": statuses.count(202), "statuses": list(statuses)}


def run_of(count: int) -> dict[str, Any]:
    return {"balanced": True, "manifest": count, "counts": {"done": count}, "proof": f"{count} = {count}"}


def good() -> Evidence:
    """Two digests, of which one address is gone, and a receipt that was sent before them."""
    return Evidence(
        digests=frozenset({"d:1", "d:2"}),
        receipts=frozenset({"r:1"}),
        jobs={
            "d:1": {"recorded_at": "2026-08-03 07:02"},
            "d:2": {"recorded_at": "2026-08-03 07:01"},
            "d:2:notice": {"recorded_at": "2026-08-03 07:01"},
            "r:1": {"recorded_at": "2026-08-03 07:00"},
        },
        runs={"weekly-digest": run_of(2), "payout-receipts": run_of(1)},
        digest={"state": "done", "pages": 2, "promised": 2, "known": 0},
        pages_at_kill=1,
        again={"new": False, "firing": {"promised": 2}},
        redriven={"status": "finished", "letters": 1, "done": 1, "steps": [1]},
        api={
            "quota": 2,
            "worst_window": 2,
            "keys": {"d:1": seen(500, 202), "d:2": seen(410), "d:2:notice": seen(202), "r:1": seen(202)},
        },
        exits=(0, 0),
    )


def broken(found: Evidence) -> set[Callable[..., Any]]:
    return {one for one in account.INVARIANTS if list(one(found))}


def test_a_good_end_breaks_nothing() -> None:
    assert broken(good()) == set()
    assert {what: count for what, count, _ in account.summary(good())}["notices that followed"] == 1


def called(**answers: Any) -> Callable[[Evidence], Evidence]:
    """The provider's report with other words for some keys."""

    def change(found: Evidence) -> Evidence:
        more = {key.replace("_", ":"): answer for key, answer in answers.items()}
        return replace(found, api={**found.api, "keys": {**found.api["keys"], **more}})

    return change


def changed(name: str, **more: Any) -> Callable[[Evidence], Evidence]:
    def change(found: Evidence) -> Evidence:
        fields: dict[str, Any] = {name: {**getattr(found, name), **more}}
        return replace(found, **fields)

    return change


@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        (changed("runs", **{"weekly-digest": run_of(1)}), account.each_row_is_a_job),
        (
            lambda found: replace(found, receipts=frozenset({"r:2"}) | found.receipts),
            account.each_row_is_a_job,
        ),
        (lambda found: replace(found, pages_at_kill=2), account.the_firing_went_on),
        (changed("digest", known=1), account.the_firing_went_on),
        (changed("redriven", done=0), account.what_was_mended_was_sent),
        (changed("redriven", status="stopped"), account.what_was_mended_was_sent),
        (changed("redriven", steps=[2]), account.what_was_mended_was_sent),
        (changed("again", new=True), account.once_is_once),
        (called(d_1=seen(202, 202)), account.nobody_twice),
        (changed("api", worst_window=3), account.quota_held),
        (called(d_1=seen(429, 202)), account.quota_held),
        (changed("jobs", **{"r:1": {"recorded_at": "2026-08-03 07:02"}}), account.receipts_came_first),
        (called(d_1=seen(410)), account.who_is_gone_is_told),
        (called(d_2=seen(202)), account.who_is_gone_is_told),
        (lambda found: replace(found, exits=(0, 1)), account.all_stopped_well),
    ],
)
def test_each_invariant_can_fail(
    change: Callable[[Evidence], Evidence], invariant: Callable[..., Any]
) -> None:
    found = change(good())
    if invariant is account.each_row_is_a_job and "r:2" in found.receipts:
        found = replace(found, jobs={**found.jobs, "r:2": found.jobs["r:1"]})
    assert invariant in broken(found)


def test_its_configuration_is_fit() -> None:
    config = load(HERE / "acklast.toml", {"HOME": "/home/jobs"})
    app = load_app(config)
    assert app.lanes() == {"digest", "receipts"}
    assert {lane.budget for lane in config.lanes.values()} == {"mail"}
    insist_on_runs(config.schedules, datetime(2026, 8, 3, tzinfo=UTC))
    for name, schedule in config.schedules.items():
        assert app.find(schedule.lane, schedule.type) is not None
        if schedule.rows is not None:
            assert callable(load_callable(config, f"schedules.{name}.rows", schedule.rows))
