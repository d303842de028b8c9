"""Where a process touches the world: every call is a step, at which it may fail or the process may die."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

from aiormq import spec

from acklast.errors import LedgerUnavailable
from acklast.ledger.api import Claim, Claimed, Fresh, JobView, Letter, Record, Recorded, Session
from acklast.outcome import GiveBack
from acklast_topology.publish import Sent, Status
from simulation.account import Start
from simulation.broker import Channel, arrived

if TYPE_CHECKING:
    from simulation.process import Process


def away(_: bool) -> NoReturn:
    """What a caller hears of a ledger that cannot be reached."""
    raise LedgerUnavailable("the ledger does not answer", "Wait.")


class LedgerPort:
    """The ledger as one process reaches it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._ledger = process.world.ledger

    async def open_session(self, instance: str, *, worker: str, version: str, lease_s: float) -> Session:
        async def act() -> Session:
            return await self._ledger.open_session(instance, worker=worker, version=version, lease_s=lease_s)

        return await self._world.step(self._process, "open session", act, lost=away)

    async def renew(self, session: Session) -> bool:
        async def act() -> bool:
            return await self._ledger.renew(session)

        return await self._world.step(self._process, "renew", act, lost=away)

    async def close_session(self, session: Session) -> None:
        async def act() -> None:
            await self._ledger.close_session(session)

        await self._world.step(self._process, "close session", act, lost=away)

    async def claim(self, session: Session, claim: Claim) -> Claimed:
        answer: Claimed | None = None

        async def act() -> Claimed:
            nonlocal answer
            answer = await self._ledger.claim(session, claim)
            return answer

        try:
            claimed = await self._world.step(self._process, f"claim {claim.key}", act, lost=away)
        except LedgerUnavailable:
            if isinstance(answer, Fresh):
                await self._release(session, claim, answer)
            raise
        if isinstance(claimed, Fresh):
            self._world.claims[self._process, claim.key] = (claimed.fence, session.id)
        return claimed

    async def _release(self, session: Session, claim: Claim, fresh: Fresh) -> None:
        """What the store itself does for a caller who never heard that it has the claim."""
        given_back = GiveBack("released", ambiguous=fresh.ambiguous)
        record = Record(
            claim.lane, claim.key, fresh.fence, given_back, "interrupted", "released", fresh.now, fresh.now
        )
        await self._ledger.record(session, record)

    async def jobs(self, key: str, lane: str | None = None) -> Sequence[JobView]:
        async def act() -> Sequence[JobView]:
            return await self._ledger.jobs(key, lane)

        return await self._world.step(self._process, f"read {key}", act, lost=away)

    async def record(self, session: Session, record: Record) -> Recorded:
        async def act() -> Recorded:
            answer = await self._ledger.record(session, record)
            self._world.account.record(record.key, record.fence, record.outcome, answer)
            return answer

        return await self._world.step(self._process, f"record {record.key}", act, lost=away)

    async def settled(self, lane: str, key: str, fence: int) -> None:
        async def act() -> None:
            await self._ledger.settled(lane, key, fence)

        await self._world.step(self._process, f"note {key}", act, lost=away)

    async def bury_stray(self, letter: Letter, *, worker: str, version: str) -> None:
        async def act() -> None:
            await self._ledger.bury_stray(letter, worker=worker, version=version)

        await self._world.step(self._process, f"bury stray {letter.key}", act, lost=away)

    @asynccontextmanager
    async def transaction(self, session: Session, record: Record) -> AsyncIterator[list[Start]]:
        """Yields a list: the starts in it have their effect with the commit."""
        effects: list[Start] = []
        yield effects

        async def act() -> None:
            async with self._ledger.transaction(session, record):
                pass
            for start in effects:
                start.effect = True
            self._world.account.record(record.key, record.fence, record.outcome, Recorded.RECORDED)

        await self._world.step(self._process, f"commit {record.key}", act, lost=away)


class SendPort:
    """The publisher of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def __call__(
        self, exchange: str, routing_key: str, body: bytes, properties: spec.Basic.Properties
    ) -> Sent:
        world = self._process.world
        raw = arrived(body, properties)

        async def act() -> Sent:
            world.broker.publish(routing_key, raw)
            return Sent(Status.CONFIRMED)

        def lost(_: bool) -> Sent:
            return Sent(Status.UNKNOWN, "no confirm")

        return await world.step(self._process, f"publish {routing_key}", act, lost=lost)


class ChannelPort:
    """The channel that a delivery came on. Nobody ever hears whether an ack arrived."""

    def __init__(self, process: Process, channel: Channel) -> None:
        self._process = process
        self._channel = channel

    @property
    def alive(self) -> bool:
        return self._channel.alive

    async def ack(self, tag: int) -> bool:
        world = self._process.world

        async def act() -> bool:
            if self._channel.alive:
                world.account.ack(world.start_here())
                self._channel.ack(tag)
            return self._channel.alive

        return await world.step(self._process, f"ack {tag}", act, lost=self._lost)

    async def nack(self, tag: int) -> bool:
        async def act() -> bool:
            if self._channel.alive:
                self._channel.nack(tag)
            return self._channel.alive

        return await self._process.world.step(self._process, f"nack {tag}", act, lost=self._lost)

    def _lost(self, arrived: bool) -> bool:
        """The channel dies with it, and the process hears the opposite of what is true."""
        if self._channel.alive:
            self._process.lose_channel()
        return not arrived
