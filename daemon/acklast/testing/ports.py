"""Where a simulated daemon touches the outside: each call is a step, which may fail, or end the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from aiormq import spec

from acklast.errors import LedgerUnavailable
from acklast.ledger.api import Claim, Claimed, Fresh, JobView, Letter, Record, Recorded, Session
from acklast.outcome import GiveBack
from acklast.testing.broker import Channel, arrived
from acklast.testing.step import Step
from acklast_topology.publish import Sent, Status

if TYPE_CHECKING:
    from acklast.testing.process import Process


def away(_: bool) -> NoReturn:
    """What a caller hears of a ledger that cannot be reached."""
    raise LedgerUnavailable("the ledger does not answer", "Wait.")


class LedgerPort:
    """The ledger as one process reaches it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stage = process.stage
        self._ledger = process.stage.ledger

    async def open_session(self, instance: str, *, worker: str, version: str, lease_s: float) -> Session:
        async def act() -> Session:
            return await self._ledger.open_session(instance, worker=worker, version=version, lease_s=lease_s)

        return await self._stage.step(self._process, Step("ledger", "open session"), act, lost=away)

    async def renew(self, session: Session) -> bool:
        async def act() -> bool:
            return await self._ledger.renew(session)

        return await self._stage.step(self._process, Step("ledger", "renew"), act, lost=away)

    async def close_session(self, session: Session) -> None:
        async def act() -> None:
            await self._ledger.close_session(session)

        await self._stage.step(self._process, Step("ledger", "close session"), act, lost=away)

    async def claim(self, session: Session, claim: Claim) -> Claimed:
        answer: Claimed | None = None

        async def act() -> Claimed:
            nonlocal answer
            answer = await self._ledger.claim(session, claim)
            return answer

        try:
            claimed = await self._stage.step(
                self._process, Step("ledger", "claim", claim.key), act, lost=away
            )
        except LedgerUnavailable:
            if isinstance(answer, Fresh):
                await self._release(session, claim, answer)
            raise
        if isinstance(claimed, Fresh):
            self._stage.claimed(self._process, session, claim, claimed)
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

        return await self._stage.step(self._process, Step("ledger", "read", key), act, lost=away)

    async def record(self, session: Session, record: Record) -> Recorded:
        async def act() -> Recorded:
            answer = await self._ledger.record(session, record)
            self._stage.recorded(self._process, record, answer)
            return answer

        return await self._stage.step(self._process, Step("ledger", "record", record.key), act, lost=away)

    async def settled(self, lane: str, key: str, fence: int) -> None:
        async def act() -> None:
            await self._ledger.settled(lane, key, fence)

        await self._stage.step(self._process, Step("ledger", "note", key), act, lost=away)

    async def bury_stray(self, letter: Letter, *, worker: str, version: str) -> None:
        async def act() -> None:
            await self._ledger.bury_stray(letter, worker=worker, version=version)

        await self._stage.step(self._process, Step("ledger", "bury stray", str(letter.key)), act, lost=away)

    @asynccontextmanager
    async def transaction(self, session: Session, record: Record) -> AsyncIterator[Any]:
        connection = self._stage.connection(self._process)
        yield connection

        async def act() -> None:
            async with self._ledger.transaction(session, record):
                pass
            self._stage.committed(self._process, record, connection)

        await self._stage.step(self._process, Step("ledger", "commit", record.key), act, lost=away)


class SendPort:
    """The publisher of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def __call__(
        self, exchange: str, routing_key: str, body: bytes, properties: spec.Basic.Properties
    ) -> Sent:
        stage = self._process.stage
        raw = arrived(body, properties)

        async def act() -> Sent:
            stage.broker.publish(routing_key, raw)
            return Sent(Status.CONFIRMED)

        def lost(_: bool) -> Sent:
            return Sent(Status.UNKNOWN, "no confirm")

        return await stage.step(self._process, Step("broker", "publish", routing_key), act, lost=lost)


class ChannelPort:
    """The channel that a delivery came on. Nobody ever hears whether an ack arrived."""

    def __init__(self, process: Process, channel: Channel) -> None:
        self._process = process
        self._channel = channel

    @property
    def alive(self) -> bool:
        return self._channel.alive

    async def ack(self, tag: int) -> bool:
        stage = self._process.stage

        async def act() -> bool:
            if self._channel.alive:
                stage.acking(self._process, self._channel, tag)
                self._channel.ack(tag)
            return self._channel.alive

        return await stage.step(self._process, Step("broker", "ack", str(tag)), act, lost=self._lost)

    async def nack(self, tag: int) -> bool:
        async def act() -> bool:
            if self._channel.alive:
                self._channel.nack(tag)
            return self._channel.alive

        return await self._process.stage.step(
            self._process, Step("broker", "nack", str(tag)), act, lost=self._lost
        )

    def _lost(self, arrived: bool) -> bool:
        """The channel dies with it, and the process hears the opposite of what is true."""
        if self._channel.alive:
            self._process.lose_channels()
        return not arrived
