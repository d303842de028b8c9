"""Settling: the carrier is confirmed before the ack, and an ack is the last thing that happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from aiormq import spec

from acklast.settle import Delivery, Settler
from acklast.telemetry.events import Emitter, Event, Notice, Published
from acklast_topology.contract import RawMessage
from acklast_topology.names import Names
from acklast_topology.publish import Sent, Status
from harness.virtual import elapse, turns, virtual

CONFIRMED = Sent(Status.CONFIRMED)
RAW = RawMessage(
    body=b'{"n": 1}',
    content_type="application/json",
    headers={"run": "r1", "x-death": [{"count": 1}]},
    message_id="k-1",
    priority=3,
)


@dataclass
class Site:
    """A channel and a publisher that do as they are told, and what was asked of them, in order."""

    answers: list[Sent] = field(default_factory=list)
    """What the broker says of each publish; confirmed once they are used up."""
    alive: bool = True
    dies_at: str = ""
    """The call at which the channel turns out to be dead."""
    given_up: bool = False
    did: list[str] = field(default_factory=list)
    sent: list[tuple[str, str, bytes, spec.Basic.Properties]] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    published: list[str] = field(default_factory=list)

    async def ack(self, tag: int) -> bool:
        return self._on_channel(f"ack {tag}")

    async def nack(self, tag: int) -> bool:
        return self._on_channel(f"nack {tag}")

    def _on_channel(self, what: str) -> bool:
        self.alive = self.alive and self.dies_at != what
        if self.alive:
            self.did.append(what)
        return self.alive

    async def send(
        self, exchange: str, routing_key: str, body: bytes, properties: spec.Basic.Properties
    ) -> Sent:
        answer = self.answers.pop(0) if self.answers else CONFIRMED
        self.did.append(f"publish {answer.status}")
        self.sent.append((exchange, routing_key, body, properties))
        self.alive = self.alive and self.dies_at != "publish"
        return answer

    def settler(self) -> Settler:
        return Settler("rent", Names(), self.send, Emitter(self._note), abandoned=lambda: self.given_up)

    def _note(self, event: Event) -> None:
        match event:
            case Notice():
                self.notices.append(event)
            case Published(kind=kind, count=1):
                self.published.append(kind)
            case _:
                raise AssertionError(event)

    def delivery(self) -> Delivery:
        return Delivery(RAW, 7, self)

    def noted(self) -> list[str]:
        return [notice.name for notice in self.notices]


def unconfirmed(statuses: Iterable[Status]) -> list[Sent]:
    return [Sent(status, "why") for status in statuses]


async def test_an_ack_goes_to_the_channel_that_brought_the_delivery() -> None:
    site = Site()
    assert await site.settler().ack(site.delivery())
    assert site.did == ["ack 7"]
    assert site.noted() == []


async def test_an_ack_on_a_dead_channel_is_noted_and_left_to_redelivery() -> None:
    site = Site(alive=False)
    assert not await site.settler().ack(site.delivery())
    assert site.did == []
    assert site.noted() == ["delivery.ack_lost"]


@pytest.mark.parametrize("alive", [True, False])
async def test_giving_back_is_a_nack_and_says_whether_it_could_be_sent(alive: bool) -> None:
    site = Site(alive=alive)
    assert await site.settler().give_back(site.delivery()) is alive
    assert site.did == (["nack 7"] if alive else [])


async def test_what_is_published_is_told_by_what_it_is_for_once_it_is_confirmed() -> None:
    site = Site(answers=unconfirmed([Status.UNKNOWN]))
    settler = site.settler()
    assert not await settler.hand_on(site.delivery(), "k-1")
    assert site.published == []
    await settler.hand_on(site.delivery(), "k-1")
    await settler.wait(site.delivery(), "k-1", 40.0)
    await settler.set_aside(site.delivery(), "k-1", 2)
    assert site.published == ["hand_on", "retry", "fair"]


async def test_waiting_publishes_the_carrier_and_acks_after_its_confirm() -> None:
    site = Site()
    assert await site.settler().wait(site.delivery(), "k-1", 40.0)
    assert site.did == ["publish confirmed", "ack 7"]
    [(exchange, routing_key, body, properties)] = site.sent
    assert (exchange, routing_key, body) == ("acklast.v1.route", "rent.wait.30", RAW.body)
    assert properties.headers == {"run": "r1", "job-key": "k-1"}
    assert properties.delivery_mode == 2
    assert properties.priority == 3


@pytest.mark.parametrize(
    ("wait_s", "bucket"), [(-5.0, 1), (0.0, 1), (0.99, 1), (4.9, 1), (5.0, 5), (119.0, 30), (1e9, 21600)]
)
async def test_the_wait_is_the_longest_bucket_that_is_not_too_long(wait_s: float, bucket: int) -> None:
    site = Site()
    await site.settler().wait(site.delivery(), "k-1", wait_s)
    assert site.sent[0][1] == f"rent.wait.{bucket}"


@virtual
async def test_what_is_not_confirmed_is_published_again_with_a_fresh_id_until_it_is() -> None:
    statuses = [Status.UNKNOWN, Status.RETURNED, Status.REFUSED] * 4
    site = Site(answers=unconfirmed(statuses))
    assert await site.settler().wait(site.delivery(), "k-1", 1.0)
    assert site.did == [*(f"publish {status}" for status in statuses), "publish confirmed", "ack 7"]
    warned = [notice.fields["status"] for notice in site.notices if notice.level == "warning"]
    assert warned == [Status.UNKNOWN, Status.RETURNED, Status.REFUSED], "said once, and not at each try"
    assert site.noted() == [*["carrier.unconfirmed"] * len(statuses), "carrier.confirmed"]
    ids = {properties.message_id for *_, properties in site.sent}
    assert len(ids) == len(site.sent), "the library matches a return to its publish by the message id"
    assert "k-1" not in ids


@virtual
async def test_a_broker_that_does_not_answer_is_not_hammered() -> None:
    site = Site(answers=unconfirmed([Status.UNKNOWN] * 1000))
    waiting = asyncio.create_task(site.settler().wait(site.delivery(), "k-1", 1.0))
    await elapse(60)
    assert 20 <= len(site.sent) <= 40
    assert not waiting.done()
    site.answers.clear()
    assert await waiting


@virtual
async def test_a_delivery_whose_channel_died_is_left_to_its_redelivery_and_not_doubled() -> None:
    site = Site(alive=False)
    assert not await site.settler().wait(site.delivery(), "k-1", 1.0)
    assert site.did == [], "the broker has requeued it: a carrier would be a second copy"


@virtual
async def test_the_carrier_is_not_published_again_once_the_channel_died() -> None:
    site = Site(answers=unconfirmed([Status.UNKNOWN]), dies_at="publish")
    assert not await site.settler().wait(site.delivery(), "k-1", 1.0)
    assert site.did == ["publish unknown"]


async def test_an_ack_that_is_lost_after_the_carrier_is_said() -> None:
    site = Site(dies_at="ack 7")
    assert not await site.settler().wait(site.delivery(), "k-1", 1.0)
    assert site.did == ["publish confirmed"]
    assert site.noted() == ["delivery.ack_lost"]


@virtual
async def test_at_the_end_of_a_drain_the_unconfirmed_stays_unacked() -> None:
    site = Site(answers=unconfirmed([Status.UNKNOWN] * 1000))
    waiting = asyncio.create_task(site.settler().wait(site.delivery(), "k-1", 1.0))
    await turns()
    site.given_up = True
    assert not await waiting
    assert set(site.did) == {"publish unknown"}


async def test_a_carrier_that_took_over_leaves_nothing_to_settle() -> None:
    site = Site()
    settler, delivery = site.settler(), site.delivery()
    assert await settler.hand_on(delivery, "k-1")
    assert site.did == ["publish confirmed", "ack 7"]
    assert site.sent[0][1] == "rent.wait.30"
    assert await settler.ack(delivery)
    assert await settler.wait(delivery, "k-1", 5.0)
    assert await settler.give_back(delivery)
    assert not await settler.hand_on(delivery, "k-1")
    assert site.did == ["publish confirmed", "ack 7"]


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.RETURNED, Status.REFUSED])
async def test_a_delivery_stays_where_its_carrier_is_not_confirmed(status: Status) -> None:
    site = Site(unconfirmed([status]))
    settler, delivery = site.settler(), site.delivery()
    assert not await settler.hand_on(delivery, "k-1")
    assert site.noted() == ["carrier.unconfirmed"]
    assert await settler.hand_on(delivery, "k-1"), "the next look tries again"
    assert site.did == [f"publish {status}", "publish confirmed", "ack 7"]


async def test_a_job_that_ends_while_its_carrier_is_published_is_acked_once() -> None:
    site = Site()
    delivery = site.delivery()

    async def send(exchange: str, routing_key: str, body: bytes, properties: spec.Basic.Properties) -> Sent:
        assert await settler.ack(delivery), "the handler has ended meanwhile"
        assert not await settler.hand_on(delivery, "k-1")
        return await site.send(exchange, routing_key, body, properties)

    settler = Settler("rent", Names(), send, Emitter(), abandoned=lambda: False)
    assert not await settler.hand_on(delivery, "k-1")
    assert site.did == ["ack 7", "publish confirmed"]
