"""The reminders example: its configuration is fit, and each thing that it proves can fail."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "rent-reminders"))

import account
from account import Evidence

from acklast.config import load, load_app

HERE = Path(account.__file__).parent


def good() -> Evidence:
    """Two reminders that had time, one of them in doubt, and one that came too late."""
    calls: dict[str, Any] = {
        "r:T-1": {"sent": 1, "unanswered": 0, "statuses": [503, 202]},
        "r:T-2": {"sent": 1, "unanswered": 1, "statuses": [202]},
    }
    return Evidence(
        in_time=frozenset(calls),
        too_late=frozenset({"r:T-3"}),
        jobs={
            "r:T-1": {"state": "done", "letters": []},
            "r:T-2": {"state": "unresolved", "letters": [{"reason": "cut_off:disconnected"}]},
            "r:T-3": {"state": "dead", "letters": [{"reason": "deadline_exceeded"}]},
        },
        run={"balanced": True, "open": 0, "manifest": 3, "proof": "3 = 3"},
        api={"quota": 2, "worst_window": 2, "keyless": 0, "outage_calls": 1, "keys": calls},
        exit=0,
        receipt={"cut": False},
    )


def broken(found: Evidence) -> set[str]:
    return {one.__name__ for one in account.INVARIANTS if list(one(found))}


def test_what_went_well_breaks_nothing() -> None:
    assert broken(good()) == set()


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("all_accounted", lambda e: replace(e, run=e.run | {"open": 1})),
        ("nobody_twice", lambda e: with_call(e, "r:T-1", sent=2)),
        ("done_was_sent", lambda e: with_call(e, "r:T-1", sent=0)),
        ("doubt_is_held", lambda e: with_call(e, "r:T-1", unanswered=1)),
        ("doubt_is_held", lambda e: with_call(e, "r:T-2", unanswered=0)),
        ("late_is_never", lambda e: with_call(e, "r:T-3", statuses=[202])),
        ("quota_held", lambda e: replace(e, api=e.api | {"worst_window": 3})),
        ("outage_was_cheap", lambda e: replace(e, api=e.api | {"outage_calls": 600})),
        ("keys_went_along", lambda e: replace(e, api=e.api | {"keyless": 1})),
        ("drain_cut_nothing", lambda e: replace(e, receipt={"cut": True})),
    ],
)
def test_each_invariant_can_fail(name: str, spoil: Callable[[Any], Evidence]) -> None:
    assert name in broken(spoil(good()))


def with_call(found: Evidence, key: str, **changes: Any) -> Evidence:
    calls = dict(found.api["keys"])
    calls[key] = {"sent": 0, "unanswered": 0, "statuses": []} | dict(calls.get(key, {})) | changes
    return replace(found, api={**found.api, "keys": calls})


def test_the_configuration_has_no_application_and_one_request(tmp_path: Path) -> None:
    config = load(HERE / "acklast.toml", {"HOME": str(tmp_path)})
    assert config.app is None
    assert load_app(config).find("reminders", "rent.reminder.v1") is not None


@pytest.mark.parametrize("file", ["account.py", "mail_api.py", "tenants.py", "acklast.toml"])
def test_the_readme_names_every_file(file: str) -> None:
    assert f"`{file}`" in (HERE / "README.md").read_text()
