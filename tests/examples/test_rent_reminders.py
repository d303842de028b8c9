"""The HTTP lane of examples/rent-reminders through faults, with a mail API of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from acklast.testing import EPOCH, Crash, CutOff, Drain, NotSent, Reply, TestJob, TestWorker, replies
from acklast.testing.plugin import MakeWorker

LANE = "reminders"
TENANT = {"name": "Bea", "email": "t0001@tenants.example", "month": "July 2026", "rent_cents": "60137"}
NewWorker: TypeAlias = Callable[..., TestWorker]


@pytest.fixture
def answering(example: Callable[[str], Path], acklast_worker: MakeWorker) -> NewWorker:
    """Makes a worker whose mail API answers like this, one request after the other."""
    toml = example("rent-reminders")
    return lambda *script: acklast_worker(toml, http={LANE: replies(*script)})


def remind(worker: TestWorker, key: str = "july:T-0001", **more: timedelta) -> TestJob:
    deadlines = {name: EPOCH + after for name, after in more.items()}
    return partial(worker.publish, LANE, TENANT, key=key, run="july")(**deadlines)  # type: ignore[arg-type]


def test_a_reminder_says_what_is_due(answering: NewWorker) -> None:
    worker = answering(Reply(202, body=b'{"queued": true}'))
    job = remind(worker)
    worker.run_until_idle()
    job.assert_state("done", attempts=1)
    assert job.result == {"status": 202, "excerpt": '{"queued": true}'}
    [request] = worker.requests
    assert (request.method, request.url) == ("POST", "http://127.0.0.1:8025/v1/messages?campaign=july")
    assert request.headers["Idempotency-Key"] == '"july:T-0001"'
    assert request.headers["Authorization"].startswith("Bearer ")
    assert request.body is not None
    assert "601.37 EUR are due" in json.loads(request.body)["text"]
    assert request.headers["Authorization"].removeprefix("Bearer ") not in worker.story()


def test_a_tenant_who_has_moved_out_wants_none(answering: NewWorker) -> None:
    worker = answering(Reply(410))
    job = remind(worker)
    worker.run_until_idle()
    job.assert_state("done")


def test_a_429_waits_as_long_as_it_says(answering: NewWorker) -> None:
    worker = answering(Reply(429, {"Retry-After": "Mon, 05 Jan 2026 09:02:00 GMT"}), Reply(202))
    job = remind(worker)
    worker.run_until_idle()
    job.assert_state("done", attempts=1)
    assert [wait.seconds for wait in job.waits] == [120]


def test_a_reminder_that_was_never_sent_is_sent_again(answering: NewWorker) -> None:
    worker = answering(NotSent("connect"), Reply(503), Reply(202))
    job = remind(worker)
    worker.run_until_idle()
    job.assert_state("done", attempts=3)
    assert [wait.reason for wait in job.waits] == ["not_sent:connect", "http_503"]


@pytest.mark.parametrize("fault", [None, Crash("effect"), Crash("claimed")])
def test_a_reminder_that_may_have_been_sent_is_left_to_a_person(
    answering: NewWorker, fault: Crash | None
) -> None:
    worker = answering(CutOff("reset") if fault is None else Reply(202))
    if fault is not None:
        worker.fault(LANE, fault)
    job = remind(worker)
    worker.run_until_idle()
    job.assert_state("unresolved")
    assert len(worker.requests) == (fault != Crash("claimed"))


def test_a_drain_between_two_attempts_loses_nothing(answering: NewWorker) -> None:
    worker = answering(Reply(503), Reply(202))
    worker.fault(LANE, Drain("recorded"))
    job = remind(worker)
    worker.run_until_idle()
    job.assert_state("done", attempts=2)


def test_past_its_deadline_no_reminder_is_sent(answering: NewWorker) -> None:
    worker = answering(Reply(429, {"Retry-After": "60"}), Reply(202))
    job = remind(worker, deadline=timedelta(seconds=30))
    worker.run_until_idle()
    job.assert_state("dead", reason="deadline_exceeded")
    assert len(worker.requests) == 1


def test_a_mail_api_that_is_down_is_probed_and_burns_no_attempts(answering: NewWorker) -> None:
    worker = answering(*[Reply(503)] * 8, Reply(202))
    for number in range(40):
        remind(worker, f"july:{number}")
    worker.run_until_idle()
    worker.assert_states(done=40)
    assert max(job.attempts for job in worker.jobs) <= 3
    assert [event.text for event in worker.events if event.text.startswith("breaker.opened")]
