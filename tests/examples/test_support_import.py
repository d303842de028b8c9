"""The handlers of examples/support-import through faults, with a help desk of the test's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from acklast.testing import Crash, Drain, Freeze, TestJob, TestWorker
from acklast.testing.plugin import MakeWorker
from harness.fake_session import Answer, FakeSession

LANE = "imports"
TICKET = {
    "ticket": "T-00001",
    "account": "A-0001",
    "subject": "The printer is on fire",
    "opened_on": "2019-04-01",
    "priority": "high",
}


class HelpDesk:
    """Gives each ticket a number, and the same one when its key comes again."""

    def __init__(self) -> None:
        self.worker: TestWorker
        self.session = FakeSession(self.respond)
        self.numbers: dict[str, int] = {}
        self.script: list[Answer | Exception] = []

    def respond(self, key: str, ticket: Any) -> Answer:
        answer = self.script.pop(0) if self.script else None
        if isinstance(answer, Answer):
            return answer
        if isinstance(answer, aiohttp.ClientConnectorError):
            raise answer
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers) + 1
            self.worker.effect(key, f"ticket {self.numbers[key]}")
        if answer is not None:
            raise answer
        return Answer(201, {"number": self.numbers[key]})

    def ticket(self, key: str = "import:T-00001", **changed: Any) -> TestJob:
        return self.worker.publish(LANE, TICKET | changed, key=key)


@pytest.fixture
def desk(
    example: Callable[[str], Path], acklast_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> HelpDesk:
    desk = HelpDesk()
    desk.worker = acklast_worker(example("support-import"))
    monkeypatch.setattr(sys.modules["support_handlers"], "session", lambda: desk.session)
    return desk


@pytest.mark.parametrize("fault", [None, Crash("effect"), Crash("recorded"), Freeze(), Drain()])
def test_a_ticket_is_imported_once_whatever_happens_to_the_daemon(
    desk: HelpDesk, fault: Crash | Freeze | Drain | None
) -> None:
    if fault is not None:
        desk.worker.fault(LANE, fault)
    job = desk.ticket()
    desk.worker.run_until_idle()
    job.assert_state("done")
    job.assert_one_effect()
    assert job.result == {"number": 1}


def test_an_answer_that_was_lost_is_asked_for_again(desk: HelpDesk) -> None:
    desk.script = [aiohttp.ServerDisconnectedError(), TimeoutError()]
    job = desk.ticket()
    desk.worker.run_until_idle()
    job.assert_state("done", attempts=3)
    job.assert_one_effect()
    assert [wait.reason for wait in job.waits] == ["no_answer"] * 2


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [(422, "dead", "account_closed"), (500, "done", None), (429, "done", None), (403, "dead", None)],
)
def test_what_the_help_desk_says_is_what_becomes_of_the_ticket(
    desk: HelpDesk, status: int, state: str, reason: str | None
) -> None:
    desk.script = [Answer(status, headers={"Retry-After": "40"} if status == 429 else None)]
    job = desk.ticket()
    desk.worker.run_until_idle()
    job.assert_state(state, reason=reason)
    assert [wait.seconds for wait in job.waits if not wait.spends] == [40] * (status == 429)


def test_a_row_that_is_no_ticket_is_a_dead_letter(desk: HelpDesk) -> None:
    job = desk.ticket(opened_on="in April")
    desk.worker.run_until_idle()
    job.assert_state("dead", reason="invalid_payload")
