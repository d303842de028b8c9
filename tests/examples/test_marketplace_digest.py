"""The handlers of examples/marketplace-digest through faults, with a mail provider of the test's own."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from acklast.testing import Crash, TestJob, TestWorker
from acklast.testing.plugin import MakeWorker
from harness.fake_session import Answer, FakeSession

DIGEST = {
    "seller": "S-1",
    "name": "Bea",
    "email": "bea@shop.example",
    "contact": "post@shop.example",
    "offers": 3,
}
PAYOUT = {"payout": "P-1", "name": "Bea", "email": "bea@shop.example", "cents": 1250}


class Provider:
    """Sends each mail once for its key; some addresses are gone."""

    def __init__(self) -> None:
        self.worker: TestWorker
        self.session = FakeSession(self.respond)
        self.sent: dict[str, str] = {}
        self.gone: set[str] = set()
        self.breaks = 0

    def respond(self, key: str, mail: Any) -> Answer:
        if mail["to"] in self.gone:
            return Answer(410)
        if key not in self.sent:
            self.sent[key] = mail["text"]
            self.worker.effect(key, f"mail to {mail['to']}")
        if self.breaks:
            self.breaks -= 1
            raise aiohttp.ServerDisconnectedError
        return Answer(202)

    def digest(self, key: str = "weekly-2026-W02:S-1") -> TestJob:
        return self.worker.publish("digest", DIGEST, key=key, type="seller.digest.v1")

    def receipt(self, key: str = "receipt:P-1") -> TestJob:
        return self.worker.publish("receipts", PAYOUT, key=key, type="payout.receipt.v1")


@pytest.fixture
def provider(
    example: Callable[[str], Path], acklast_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> Provider:
    provider = Provider()
    provider.worker = acklast_worker(example("marketplace-digest"))
    monkeypatch.setattr(sys.modules["digest_handlers"], "session", lambda: provider.session)
    return provider


def test_a_digest_and_a_receipt_are_sent(provider: Provider) -> None:
    jobs = provider.digest(), provider.receipt()
    provider.worker.run_until_idle()
    assert [job.result for job in jobs] == [{"sent": True}] * 2
    assert list(provider.sent.values()) == ["Bea, there are 3 new offers", "Bea, we have paid you 12.50 EUR"]


def test_where_the_address_is_gone_a_notice_goes_to_the_other_one_however_often_it_is_tried(
    provider: Provider,
) -> None:
    provider.gone = {DIGEST["email"]}  # type: ignore[arg-type]  # the values are of several types
    provider.worker.fault("digest", Crash("effect"))
    job = provider.digest()
    provider.worker.run_until_idle()
    job.assert_state("done", attempts=2)
    notice = provider.worker.job("receipts", f"{job.key}:notice")
    notice.assert_state("done")
    notice.assert_one_effect()
    assert notice.effects == [f"mail to {DIGEST['contact']}"]
    assert len(provider.worker.enqueued) == 1


def test_a_mail_whose_answer_was_lost_is_asked_for_again_under_its_key(provider: Provider) -> None:
    provider.breaks = 2
    job = provider.receipt()
    provider.worker.run_until_idle()
    job.assert_state("done", attempts=3)
    job.assert_one_effect()
    assert [wait.reason for wait in job.waits] == ["no_answer"] * 2
    assert {key for _, key, _ in provider.session.posts} == {job.key}


def test_both_lanes_together_stay_within_what_the_provider_allows(provider: Provider) -> None:
    for number in range(150):
        provider.digest(f"d:{number}")
        provider.receipt(f"r:{number}")
    provider.worker.run_until_idle()
    provider.worker.assert_states(done=300)
    starts = [event for event in provider.worker.events if event.name == "started"]
    # The quota as configured, in one window and in the next: nothing is left unused either.
    assert Counter(int(event.at_s) for event in starts) == {0: 100, 1: 100, 2: 100}
    assert {event.lane for event in starts if event.at_s < 1} == {"digest", "receipts"}
