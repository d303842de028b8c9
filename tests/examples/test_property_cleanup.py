"""The handlers of examples/property-cleanup through faults, with a property API of the test's own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acklast.testing import Crash, Drain, Freeze, Heir, TestJob, TestWorker
from acklast.testing.plugin import MakeWorker
from harness.fake_session import Answer

LANE = "cleanup"
ORDER = {
    "property_id": "P-00001",
    "task": "clean",
    "rooms": 3,
    "vacated_on": "2026-01-02",
    "ready_by": "2026-01-09",
    "budget_cents": 40_000,
}


class PropertyApi:
    """Stands in for the session of the handlers. It repeats no order and knows which it has."""

    def __init__(self) -> None:
        self.worker: TestWorker
        self.receipts: dict[str, int] = {}
        self.refusals: list[Answer] = []
        self.seconds = 0.0

    @asynccontextmanager
    async def post(self, path: str, *, json: Any, headers: Mapping[str, str]) -> AsyncIterator[Answer]:
        if self.refusals:
            yield self.refusals.pop(0)
            return
        key = headers["Idempotency-Key"].strip('"')
        self.receipts[key] = len(self.receipts) + 1
        self.worker.effect(key, f"order {self.receipts[key]} at {path}")
        await self._answers()
        yield Answer(201, {"receipt": self.receipts[key]})

    async def _answers(self) -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(self.seconds, over.set)
        await over.wait()

    @asynccontextmanager
    async def get(self, path: str, *, params: Mapping[str, str]) -> AsyncIterator[Answer]:
        receipt = self.receipts.get(params["key"])
        yield Answer(404) if receipt is None else Answer(200, {"receipt": receipt})

    def order(self, key: str = "r-1:P-00001", **changed: Any) -> TestJob:
        return self.worker.publish(LANE, ORDER | changed, key=key)


@pytest.fixture
def api(
    example: Callable[[str], Path], acklast_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> PropertyApi:
    api = PropertyApi()
    api.worker = acklast_worker(example("property-cleanup"))
    monkeypatch.setattr(sys.modules["handlers"], "session", lambda: api)
    return api


def test_an_order_is_placed_once_and_its_receipt_kept(api: PropertyApi) -> None:
    job = api.order()
    api.worker.run_until_idle()
    job.assert_state("done", attempts=1)
    assert (job.result, job.effects) == ({"receipt": 1}, ["order 1 at /properties/P-00001/cleanups"])


@pytest.mark.parametrize("fault", [Crash("effect"), Crash("effect", heir=Heir.OTHER), Freeze("effect")])
def test_an_order_whose_answer_nobody_kept_is_looked_up_and_not_placed_again(
    api: PropertyApi, fault: Crash | Freeze
) -> None:
    api.worker.fault(LANE, fault)
    job = api.order()
    api.worker.run_until_idle()
    job.assert_state("done")
    job.assert_events("effect", "reconciled", "recorded")
    job.assert_one_effect()
    assert job.result == {"receipt": 1}


def test_an_order_that_was_never_sent_is_placed_when_the_look_up_says_so(api: PropertyApi) -> None:
    api.worker.fault(LANE, Crash("claimed"))
    job = api.order()
    api.worker.run_until_idle()
    job.assert_events("reconciled", "started", "effect")
    job.assert_one_effect()


def test_an_api_that_does_not_answer_in_time_is_asked_whether_it_has_the_order(api: PropertyApi) -> None:
    api.seconds = 11  # the handler has 10
    job = api.order()
    api.worker.run_until_idle()
    job.assert_state("done", attempts=2)
    job.assert_one_effect()
    assert [wait.reason for wait in job.waits] == ["timeout"]


def test_a_drain_that_cuts_an_order_leaves_it_to_the_look_up(api: PropertyApi) -> None:
    api.seconds = 9.5
    api.worker.fault(LANE, Drain(after_s=0.1))
    job = api.order()
    api.worker.run_until_idle()
    job.assert_state("done", attempts=1)
    job.assert_one_effect()


def test_a_429_makes_the_whole_lane_wait(api: PropertyApi) -> None:
    api.refusals = [Answer(429, headers={"Retry-After": "20"})]
    first = api.order("r-1:first")
    api.worker.advance(1)
    second = api.order("r-1:second")
    api.worker.run_until_idle()
    assert [(wait.seconds, wait.spends) for wait in first.waits] == [(20, False)]
    assert second.starts[0].at_s >= 20
    api.worker.assert_states(done=2)


@pytest.mark.parametrize(("status", "reason"), [(404, "property_unknown"), (422, "order_refused")])
def test_what_the_api_refuses_for_good_is_a_dead_letter(api: PropertyApi, status: int, reason: str) -> None:
    api.refusals = [Answer(status)]
    job = api.order()
    api.worker.run_until_idle()
    job.assert_state("dead", attempts=1, reason=reason)
    assert job.effects == []


def test_a_row_that_makes_no_sense_is_never_ordered(api: PropertyApi) -> None:
    job = api.order(ready_by="2025-12-31")
    api.worker.run_until_idle()
    job.assert_state("dead", reason="invalid_payload")
    assert job.starts == []
