"""The example of a batch: its handler on the real delivery path, its rows, and its judge."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from acklast import RateLimited, Transient
from acklast.testing import Crash, TestWorker

EXAMPLE = Path(__file__).parents[2] / "examples" / "support-import"
TICKET = {"account": "A-0001", "subject": "Door", "opened_on": "2019-03-04", "priority": "low"}


@pytest.fixture(scope="module", autouse=True)
def _path() -> Iterator[None]:
    sys.path.insert(0, str(EXAMPLE))
    yield
    sys.path.remove(str(EXAMPLE))


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


# --- the handler ----------------------------------------------------------------------------------------


class Answer:
    def __init__(self, status: int, number: int = 0, retry_after: str | None = None) -> None:
        self.status = status
        self.headers = {"Retry-After": retry_after} if retry_after else {}
        self._number = number

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def json(self) -> dict[str, int]:
        return {"number": self._number}


class Desk:
    """Stands for the session with the help desk: knows a key when it comes again."""

    def __init__(self, worker: TestWorker) -> None:
        self.worker = worker
        self.imported: list[str] = []
        self.answers: list[Answer] = []

    def post(self, _: str, *, json: dict[str, Any], headers: dict[str, str]) -> Answer:
        if self.answers:
            return self.answers.pop(0)
        key = next(iter(headers.values()))
        if key not in self.imported:
            self.imported.append(key)
            self.worker.effect(json["ticket"], "imported")
        return Answer(201, self.imported.index(key) + 1)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    handlers = module("support_handlers")
    with TestWorker(handlers.app) as worker:
        made = Desk(worker)
        monkeypatch.setattr(handlers, "session", lambda: made)
        yield made


def ticket(number: int, **other: str) -> dict[str, str]:
    return {"ticket": f"T-{number:05d}"} | TICKET | other


def test_a_ticket_is_imported(desk: Desk) -> None:
    job = desk.worker.publish("imports", ticket(1), key="T-00001")
    desk.worker.run_until_idle()
    job.assert_state("done", attempts=1)
    job.assert_one_effect()
    assert job.result == {"number": 1}


def test_an_outage_of_429_spends_no_attempt(desk: Desk) -> None:
    desk.answers = [Answer(429, retry_after="3"), Answer(429, retry_after="2")]
    job = desk.worker.publish("imports", ticket(2), key="T-00002")
    desk.worker.run_until_idle()
    job.assert_state("done", attempts=1)
    job.assert_one_effect()


def test_a_crash_after_the_import_imports_nothing_twice(desk: Desk) -> None:
    desk.worker.fault("imports", Crash())
    job = desk.worker.publish("imports", ticket(3), key="T-00003")
    desk.worker.run_until_idle()
    job.assert_state("done")
    job.assert_one_effect()


@pytest.mark.parametrize("fault", [RateLimited(5), Transient("unreachable")])
def test_what_passes_is_tried_again(desk: Desk, fault: Exception) -> None:
    desk.worker.fault("imports", fault)
    job = desk.worker.publish("imports", ticket(4), key="T-00004")
    desk.worker.run_until_idle()
    job.assert_state("done")


def test_what_does_not_pass_is_dead_with_its_reason(desk: Desk) -> None:
    desk.answers = [Answer(422)]
    closed = desk.worker.publish("imports", ticket(5), key="T-00005")
    odd = desk.worker.publish("imports", ticket(6, priority="urgent!!"), key="T-00006")
    desk.worker.run_until_idle()
    closed.assert_state("dead", reason="account_closed")
    odd.assert_state("dead", reason="invalid_payload")


# --- the rows and the judge -----------------------------------------------------------------------------


def test_the_rows_are_of_every_kind_and_the_same_every_time() -> None:
    rows = module("support_rows")
    made = rows.rows()
    assert Counter(row.kind.value for row in made) == {
        "sound": 4836,
        "repeat": 60,
        "conflict": 51,
        "malformed": 23,
        "invalid payload": 20,
        "closed account": 10,
    }
    assert made == rows.rows()
    first = {row.ticket: row for row in reversed(made) if row.kind in rows.JOBS}
    for row in made:
        commas = row.text.count(",")
        assert (commas == 4 and not row.text.startswith(",")) == (row.kind != "malformed"), row
        if row.kind == "repeat":
            assert row.text == first[row.ticket].text
        if row.kind == "conflict":
            assert row.text != first[row.ticket].text


def evidence() -> Any:
    """What the sources say of a run that went well."""
    account, rows = module("support_account"), module("support_rows")
    made = rows.rows()
    ends = {"sound": ("done", ""), "closed account": ("dead", "account_closed")}
    jobs = [row for row in made if row.kind in rows.JOBS]
    items = [
        {"key": f"r:{row.ticket}", "state": state, "reason": reason, "attempts": "1"}
        for row in jobs
        for state, reason in [ends.get(row.kind.value, ("dead", "invalid_payload"))]
    ]
    desk = {f"r:{row.ticket}": {"imported": int(row.kind == "sound")} for row in jobs}
    counts = {"accepted": 4866, "again": 0, "duplicate": 60, "conflict": 51, "malformed": 23}
    told = [row for row in made if row.kind in ("conflict", "malformed")]
    return account.Evidence(
        run="r",
        rows=made,
        dry={"counts": counts, "forecast": {"finish": "2030-01-01T00:00:00Z"}},
        killed=-9,
        published=2000,
        enqueued={"rows": 5000, "counts": counts | {"accepted": 0, "again": 4866}},
        refused=[{"line": row.line, "fate": row.kind.value, "row": row.text} for row in told],
        account={"balanced": True, "open": 0, "proof": ""},
        items=items,
        holds=True,
        desk={"keys": desk, "keyless": 0, "outage_calls": 9, "quota": 250, "worst_window": 250},
        exit=0,
    )


def broken(found: Any) -> list[str]:
    return [one.__name__ for one in module("support_account").INVARIANTS if list(one(found))]


def test_a_run_that_went_well_breaks_nothing() -> None:
    assert broken(evidence()) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"dry": {"counts": {}, "forecast": None}}, "dry_run_foresaw"),
        ({"killed": 0}, "died_in_the_middle"),
        ({"published": 4866}, "died_in_the_middle"),
        ({"refused": []}, "rows_have_fates"),
        ({"holds": False}, "one_job_a_row"),
        ({"items": []}, "one_job_a_row"),
        ({"exit": 1}, "drain_cut_nothing"),
    ],
)
def test_the_judge_finds_what_went_wrong(change: dict[str, Any], name: str) -> None:
    assert name in broken(replace(evidence(), **change))


@pytest.mark.parametrize(
    ("part", "value", "name"),
    [
        ("worst_window", 251, "quota_was_kept"),
        ("outage_calls", 0, "outage_spent_nothing"),
        ("keyless", 1, "imported_once"),
        ("keys", {}, "imported_once"),
    ],
)
def test_the_judge_believes_the_help_desk(part: str, value: Any, name: str) -> None:
    found = evidence()
    assert broken(replace(found, desk=found.desk | {part: value})) == [name]
