"""The demo's own judge: it accepts a run that went well, and finds each way in which one can go wrong."""

from __future__ import annotations

import copy
import csv
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "property-cleanup"
RUN = "spring"


def _load() -> ModuleType:
    # By its path: the example is no package, and its other modules have names that are others' as well.
    spec = importlib.util.spec_from_file_location("property_cleanup_report", EXAMPLE / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


report = _load()


def row(number: int, **other: str) -> dict[str, str]:
    return {
        "property_id": f"P-{number:05d}",
        "task": "clean",
        "rooms": "3",
        "vacated_on": "2026-01-05",
        "ready_by": "2026-01-09",
        "budget_cents": "15000",
    } | other


def job(state: str = "done", reason: str | None = None, *history: str, **other: Any) -> dict[str, Any]:
    attempts = [{"outcome": outcome, "attempt": 1, "worker": "demo@host:1"} for outcome in history]
    counts = {"attempts": 1, "rate_limited": 0}
    return {"state": state, "reason": reason, "history": attempts} | counts | other


def seen(*statuses: int) -> dict[str, Any]:
    """The API's account of a key that was answered like this."""
    counts = {"requests": len(statuses), "said_key": len(statuses), "effects": statuses.count(201)}
    return counts | {"statuses": list(statuses)}


def key(number: int) -> str:
    return f"{RUN}:P-{number:05d}"


LOST, LIMITED, DOUBTFUL, REFUSED, MALFORMED = key(1), key(2), key(3), key(90_001), key(5)


def good() -> Any:
    """A small run that kept every promise: a 429, a crash whose effect was found, two dead, a repeat."""
    return report.Evidence(
        run=RUN,
        rows=[row(1), row(2), row(1), row(3), row(90_001), row(5, rooms="0"), row(6)],
        enqueued={"accepted": 6, "duplicate": 1, "malformed": 0},
        account={
            "manifest": 6,
            "balanced": True,
            "open": 0,
            "counts": {"done": 4, "dead": 2, "claimed": 0},
            "proof": "manifest 6 = done 4 + dead 2: balances",
        },
        jobs={
            LOST: job(),
            LIMITED: job("done", None, "rate_limited", "transient", attempts=2, rate_limited=1),
            DOUBTFUL: job("done", None, "crashed", "reconciled", attempts=2),
            REFUSED: job("dead", "order_refused", "permanent"),
            MALFORMED: job("dead", "invalid_payload", "permanent"),
            key(6): job(),
        },
        api={
            "keys": {
                LOST: seen(201),
                LIMITED: seen(429, 500, 201),
                DOUBTFUL: seen(201),
                REFUSED: seen(422),
                key(6): seen(201),
                "somebody else's": seen(201, 201),
            }
        },
        killed=-9,
        effects_before=2,
        exit=0,
        receipt={"cut": False, "unknown": 0, "left": 0, "completed": 1},
    )


def changed(**fields: Any) -> Any:
    return replace(good(), **fields)


def with_job(of: str, account: dict[str, Any] | None) -> Any:
    jobs = dict(good().jobs)
    if account is None:
        del jobs[of]
    else:
        jobs[of] = account
    return changed(jobs=jobs)


def with_calls(of: str, account: dict[str, Any]) -> Any:
    api = copy.deepcopy(good().api)
    api["keys"][of] = account
    return changed(api=api)


def broken_of(found: Any) -> set[str]:
    """The names of the invariants that do not hold."""
    names = {report.name_of(invariant): invariant.__name__ for invariant in report.INVARIANTS}
    return {names[name] for name, _ in report.breaches(found)}


def test_a_run_that_went_well_has_no_breach() -> None:
    assert report.breaches(good()) == []


BREACHES: list[tuple[str, Callable[[], Any]]] = [
    ("rows_are_jobs", lambda: changed(enqueued={"accepted": 5, "duplicate": 1, "unknown": 1})),
    ("rows_are_jobs", lambda: with_job(LOST, None)),
    ("rows_are_jobs", lambda: with_job(key(77), job())),
    ("states_add_up", lambda: changed(account=good().account | {"balanced": False})),
    ("states_add_up", lambda: changed(account=good().account | {"manifest": 7})),
    ("states_add_up", lambda: changed(account=good().account | {"open": 1})),
    ("states_add_up", lambda: changed(account=good().account | {"counts": {"done": 5, "dead": 1}})),
    ("ends_fit", lambda: with_job(LOST, job("dead", "order_refused"))),
    ("ends_fit", lambda: with_job(REFUSED, job("dead", "http_500"))),
    ("ends_fit", lambda: with_job(MALFORMED, job("done"))),
    ("ends_fit", lambda: with_job(key(6), job("unresolved", "unknown"))),
    ("nothing_is_lost", lambda: with_calls(LOST, seen(500))),
    ("nothing_repeats", lambda: with_calls(LOST, seen(201, 201))),
    ("nothing_repeats", lambda: with_calls(DOUBTFUL, seen(201, 201, 201))),
    ("refused_has_no_effect", lambda: with_calls(REFUSED, seen(201))),
    ("refused_has_no_effect", lambda: with_calls(MALFORMED, seen(201))),
    ("calls_are_known", lambda: with_calls(key(77), seen(422))),
    ("calls_are_known", lambda: with_calls(LOST, seen(201) | {"said_key": 0})),
    ("calls_are_known", lambda: with_calls("no key, P-00001", seen(201))),
    ("quota_spends_nothing", lambda: with_job(LIMITED, job(attempts=3, rate_limited=1))),
    ("quota_spends_nothing", lambda: with_job(LIMITED, job(attempts=2, rate_limited=0))),
    ("quota_spends_nothing", lambda: with_calls(LOST, seen(429, 201))),
    ("died_half_way", lambda: changed(killed=0)),
    ("died_half_way", lambda: changed(effects_before=0)),
    ("died_half_way", lambda: changed(effects_before=4)),
    ("drain_cut_nothing", lambda: changed(exit=1)),
    ("drain_cut_nothing", lambda: changed(receipt=good().receipt | {"cut": True})),
    ("drain_cut_nothing", lambda: changed(receipt=good().receipt | {"left": 1})),
    ("drain_cut_nothing", lambda: changed(receipt=good().receipt | {"unknown": 1})),
    ("drain_cut_nothing", lambda: changed(receipt={"event": "something else"})),
]


@pytest.mark.parametrize(
    ("invariant", "found"), BREACHES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(BREACHES)]
)
def test_each_breach_is_found(invariant: str, found: Callable[[], Any]) -> None:
    assert invariant in broken_of(found())


def test_each_invariant_has_a_breach_that_finds_it() -> None:
    assert {name for name, _ in BREACHES} == {invariant.__name__ for invariant in report.INVARIANTS}


def test_a_breach_names_its_case() -> None:
    [(_, cases)] = report.breaches(with_calls(LOST, seen(201, 201) | {"statuses": [201]}))
    assert cases == [f"{LOST} had 2 effects and 0 crashed attempts"]


def test_a_repeat_in_the_crash_window_is_allowed_and_told() -> None:
    found = with_calls(DOUBTFUL, seen(201, 201))
    assert report.breaches(found) == []
    [told] = report.repeats(found)
    assert told.startswith(f"{DOUBTFUL}: 2 effects; attempt 1 of demo@host:1 died between")


def test_a_repeat_outside_the_crash_window_is_told_as_such() -> None:
    [told] = report.repeats(with_calls(LOST, seen(201, 201)))
    assert told == f"{LOST}: 2 effects; NO crashed attempt allows it"


def test_the_window_counts_what_the_crash_left_in_doubt() -> None:
    found = with_job(key(6), job("done", None, "crashed", "done", attempts=2))
    window = report.window_of(found)
    assert (window.claimed, window.found_done, window.called_again) == (2, 1, 1)


@pytest.mark.parametrize(
    ("other", "end"),
    [
        ({}, "done"),
        ({"rooms": "0"}, "dead: invalid_payload"),
        ({"rooms": "41"}, "dead: invalid_payload"),
        ({"task": "demolish"}, "dead: invalid_payload"),
        ({"vacated_on": "2026-02-30"}, "dead: invalid_payload"),
        ({"ready_by": "2025-12-31"}, "dead: invalid_payload"),
        ({"budget_cents": "12,50"}, "dead: invalid_payload"),
        ({"budget_cents": "0"}, "dead: invalid_payload"),
        ({"property_id": "P-90001"}, "dead: order_refused"),
    ],
)
def test_what_a_row_deserves(other: dict[str, str], end: str) -> None:
    assert report.end_of(row(1, **other)) == end


def rows_of_the_file() -> Iterator[dict[str, str]]:
    with (EXAMPLE / "properties.csv").open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def test_the_file_holds_what_the_demo_is_about() -> None:
    rows = list(rows_of_the_file())
    unique = {row["property_id"]: row for row in rows}
    ends = [report.end_of(row) for row in unique.values()]
    assert (len(rows), len(unique)) == (2000, 1900)
    assert [ends.count(end) for end in ("done", "dead: order_refused", "dead: invalid_payload")] == [
        1885,
        10,
        5,
    ]
