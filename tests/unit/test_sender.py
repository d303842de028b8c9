"""When a publisher's channel or node is to be given up: what is refused for long, what nobody confirms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiormq import spec
from aiormq.exceptions import DeliveryError

from acklast_topology import sender as senders
from acklast_topology.sender import Sender, Status
from harness.virtual import elapse, virtual, virtual_clock

NACK = DeliveryError(None, spec.Basic.Nack(1))


@pytest.fixture(autouse=True)
def _clock() -> Iterator[None]:
    with virtual_clock(senders):
        yield


class FakeChannel:
    """Answers each publish with what is next, the last of it for ever: None is a confirm."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers: Sequence[Exception | None] = answers
        self.is_closed = False
        self.connection = SimpleNamespace(connection_tune=SimpleNamespace(frame_max=0))

    async def basic_publish(self, body: bytes, **_: Any) -> None:
        answer, *rest = self.answers
        self.answers = rest or self.answers
        if answer is not None:
            raise answer

    async def close(self) -> None:
        self.is_closed = True


def sender(channel: FakeChannel, patience_s: float = 1.0) -> Sender:
    made: Any = channel
    return Sender(made, made, patience_s)


async def send(of: Sender, key: str = "a") -> Status:
    return (await of.send("in", key, b"{}", spec.Basic.Properties())).status


@virtual
async def test_what_is_refused_for_a_while_may_fare_better_on_another_channel() -> None:
    made = sender(FakeChannel(NACK))
    assert await send(made) is Status.REFUSED
    assert not made.stale, "one refusal is an election"
    await elapse(1.1)
    await send(made)
    assert made.stale
    assert made.patience_after_s() == 2.0, "where that is no better it is asked less often"


@virtual
async def test_a_confirm_in_between_ends_the_refusals_of_its_own_key_alone() -> None:
    channel = FakeChannel(NACK, None, NACK)
    made = sender(channel)
    await send(made)
    await elapse(1.1)
    assert await send(made) is Status.CONFIRMED
    await send(made)
    assert not made.stale
    await send(made, "b")
    await elapse(1.1)
    await send(made, "b")
    assert made.stale


@virtual
async def test_a_channel_that_was_good_for_long_is_followed_by_a_patient_one() -> None:
    made = sender(FakeChannel(None, NACK), patience_s=2.0)
    await send(made)
    await elapse(100)
    await send(made)
    await elapse(2.1)
    await send(made)
    assert made.stale
    assert made.patience_after_s() == 1.0


@virtual
async def test_a_node_is_mute_while_nothing_is_confirmed_in_time() -> None:
    made = sender(FakeChannel(TimeoutError(), NACK, TimeoutError(), None))
    for mute in (True, False, True, False):
        await send(made)
        assert made.mute is mute


@virtual
async def test_a_channel_that_is_retired_closes_when_nothing_is_under_way() -> None:
    channel = FakeChannel(None)
    made = sender(channel)
    await made.retire()
    assert channel.is_closed
