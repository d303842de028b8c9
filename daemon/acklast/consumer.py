"""A lane's consumer: keeps one channel consuming, whatever the broker does to it."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiormq.abc
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel, DeliveredMessage

from acklast.broker import Link
from acklast.channels import LOST, BulkChannel, LibraryChannel, raw_of
from acklast.outage import Outage
from acklast.pacing.gate import Gate
from acklast.pacing.prefetch import Prefetch
from acklast.progress import Part, Round
from acklast.receiver import BulkProtocol
from acklast.settle import Delivery
from acklast.telemetry.events import Emitter
from acklast_topology.calls import bounded, only_real_cancellation
from acklast_topology.contract import RawMessage

_FIRST: Final = asyncio.FIRST_COMPLETED
_REOPEN_S: Final = (0.1, 0.5, 1.0, 2.0)
"""Pauses before a channel is opened again; the last one repeats. Short: see ``broker``."""
_ANSWER_S: Final = 5.0
"""How long the broker may take to answer; then the channel is given up."""
_IDLE_S: Final = 15.0
"""After so long without a delivery the consumer is opened anew."""
_AFRESH: Final = "afresh"
"""The end of a channel that has done nothing wrong."""
_LOOK_S: Final = 0.5
"""How often the lane's pace is looked at."""
_STILL_S: Final = 120.0
"""How long it may take to come round: with many queues, each is looked at before it is consumed again."""
_BACKLOG_S: Final = 1.0
"""How often a lane that stands by looks for jobs in its queue."""


def _said(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"the broker did not answer within {_ANSWER_S:g} s"
    return str(error) or type(error).__name__


async def it_fits() -> str:
    """For whoever need not look."""
    return ""


class Consumer:
    """Consumes one queue and hands every delivery to ``deliver``, which only notes it.

    The jobs run in the daemon's own tasks: the library cancels the tasks of its callbacks when a channel
    closes, and an effect must not be cut because a channel died.
    """

    def __init__(
        self,
        lane: str,
        queue: str,
        prefetch: Prefetch,
        link: Link,
        deliver: Callable[[Delivery], None],
        recall: Callable[[float], list[Delivery]],
        emitter: Emitter,
        fit: Callable[[], Awaitable[str]] = it_fits,
        *,
        longest_s: float = 300.0,
        gate: Gate | None = None,
        backlog: Callable[[int, bool], None] = lambda jobs, served: None,
        on_change: Callable[[str], None] = lambda why: None,
    ) -> None:
        """``recall`` takes back what came before a moment of the monotonic clock and has not started.

        ``fit`` is asked before the queue is consumed again: why it may not be, or nothing. It declares again
        what is missing. ``on_change`` is told why the queue is not consumed, or nothing when it is.

        Nothing waits for a slot longer than ``longest_s``: the broker ends the channel of whoever holds a
        delivery for too long.

        While ``gate`` is shut nothing is taken in, and ``backlog`` is told how many jobs wait in the queue,
        and whether another daemon consumes it.
        """
        self._gate = gate or Gate()
        self._longest_s = longest_s
        self._backlog = backlog
        self._fit = fit
        self._on_change = on_change
        self._outage = Outage()
        self._lane = lane
        self._queue = queue
        self._prefetch = prefetch
        self._link = link
        self._deliver = deliver
        self._recall = recall
        self._emitter = emitter
        self._channel: AbstractChannel | None = None
        self._tag: str | None = None
        self._changing = asyncio.Lock()
        """Held while a consumer of ours is being opened or ended: at most one of both at a time."""
        self._stopping = False
        self._standing_said = False
        self._seen = (0, 0.0)
        self._end: asyncio.Future[str]
        """How many deliveries had come when last one did, or was still held, and when that was."""
        self._round = Round()
        self.consuming = asyncio.Event()
        self.ready = asyncio.Event()
        """It consumes or stands by: it has come as far as it can."""

    async def run(self) -> None:
        """Consume until ``cancel``: every end of a channel is followed by the next one."""
        while not self._stopping:
            self._round.again()
            unfit = ""
            connection: AbstractConnection | None = None
            try:
                with only_real_cancellation():
                    connection = await self._link.connect_insisting()
                    if self._stopping:
                        return
                    # What was looked at before the start need not be looked at again.
                    unfit = await self._fit() if self._outage.failures else ""
                    reason = unfit or await self._consume(
                        connection.transport.connection,  # type: ignore[union-attr]
                        self._link.protocol,
                    )
            except Exception as error:  # the library ends what waits with any exception, bare ones too
                reason = _said(error)
                if isinstance(error, TimeoutError) and connection is not None:
                    # What this channel holds goes back only with the connection.
                    self._link.leave(connection, reason)
            self._rest()
            if self._stopping:
                return
            if reason == _AFRESH:
                continue
            self._interrupted(reason, exact=bool(unfit))
            pause_s = _REOPEN_S[min(self._outage.failures, len(_REOPEN_S)) - 1]
            await asyncio.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - spreads load, guards nothing

    def part(self, now: float) -> Part:
        """Whether it comes round, at a moment of the monotonic clock."""
        name = f"the consumer of {self._queue}"
        # Who waited for the broker goes on a moment after it is back.
        since = max(self._round.at, self._link.changed_at)
        within_s = max(_STILL_S, 4 * self._link.heartbeat_s)  # a broker that is silent is found out by then
        return Part(name, now - since, within_s, excuse=self._link.why)

    def _interrupted(self, reason: str, *, exact: bool) -> None:
        if self._outage.interrupted(time.monotonic(), reason, exact=exact):
            level = "error" if exact else "warning"
            self._emitter.notice("lane.interrupted", level, lane=self._lane, queue=self._queue, reason=reason)
        self._on_change(reason)

    async def _consume(self, connection: aiormq.abc.AbstractConnection, protocol: BulkProtocol | None) -> str:
        """Consume on a fresh channel until it ends; the reason why it did."""
        async with bounded(_ANSWER_S):
            channel = await connection.channel(publisher_confirms=False)
        if protocol is None:
            return await self._consume_on(channel, LibraryChannel(channel))
        session = BulkChannel(channel, protocol)

        def take(tag: int, raw: RawMessage) -> None:
            session.taken = tag  # they count from 1 on each channel
            self._deliver(Delivery(raw, tag, session))

        protocol.take(channel.number, take, session.lost)
        try:
            return await self._consume_on(channel, session)
        finally:
            protocol.leave(channel.number)

    async def _consume_on(self, channel: AbstractChannel, session: LibraryChannel | BulkChannel) -> str:
        cancelled: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_cancel(_: object) -> None:
            # The channel stays open with no consumer: without this nobody would notice.
            if not cancelled.done():
                cancelled.set_result("the broker cancelled the consumer")

        self._end = cancelled
        channel.on_consumer_cancel_callbacks.add(on_cancel)
        # Before anything else is awaited: each time that it is asked for, the library makes another one.
        closing = channel.closing
        self._channel, self._tag = channel, None
        self._prefetch.begin(time.monotonic())
        self._seen = (0, time.monotonic())
        while not (cancelled.done() or closing.done()):
            if self._gate.is_open or self._stopping:
                await self._take_in(channel, session, {cancelled, closing})
            else:
                await self._stand_by(channel, {cancelled, closing})
        if cancelled.done():
            # Close, so that what this channel holds is requeued now and not at some later death. What is sent
            # on it after that ends the whole connection.
            session.retire()
            async with bounded(_ANSWER_S):
                await channel.close()
            return cancelled.result()
        error = closing.exception() if not closing.cancelled() else None
        return str(error) if error else "the channel was closed"

    async def _take_in(
        self, channel: AbstractChannel, session: LibraryChannel | BulkChannel, ends: set[asyncio.Future[Any]]
    ) -> None:
        """Consume until the channel ends, or until the gate shuts."""
        self._gate.takes(self)
        async with self._changing:
            await self._open(channel, session, self._prefetch.count)
        if self._tag is not None:
            self._standing_said = False
            self.consuming.set()
            self.ready.set()
            self._back("library" if isinstance(session, LibraryChannel) else "bulk")
        shut = asyncio.ensure_future(self._gate.shut.wait())
        waiting = ends if self._stopping else {*ends, shut}
        try:
            while not (await asyncio.wait(waiting, timeout=_LOOK_S, return_when=_FIRST))[0]:
                self._round.again()
                await self._look(channel, session)
        finally:
            shut.cancel()
        if not any(end.done() for end in ends):
            await self._pause(channel)

    def _back(self, receiver: str) -> None:
        if self._outage.back(time.monotonic()):
            prefetch = self._prefetch.count
            self._emitter.notice(
                "lane.consuming", lane=self._lane, queue=self._queue, prefetch=prefetch, receiver=receiver
            )
        self._on_change("")

    async def _pause(self, channel: AbstractChannel) -> None:
        """The gate is shut: take nothing more in, and give back what has not started."""
        async with self._changing:
            tag, self._tag = self._tag, None
            if tag is not None and not self._stopping:
                async with bounded(_ANSWER_S):
                    await channel.basic_cancel(tag)
            self._rest()
            await self._give_back(self._recall(math.inf))

    async def _stand_by(self, channel: AbstractChannel, ends: set[asyncio.Future[Any]]) -> None:
        """Wait for the gate to open, and look meanwhile whether jobs wait in the queue."""
        self.ready.set()
        if not self._standing_said:  # a channel that ends again and again says nothing new
            self._standing_said = True
            self._emitter.notice("lane.standing_by", lane=self._lane)
        self._on_change("")
        opened = asyncio.ensure_future(self._gate.opened.wait())
        try:
            while not (opened.done() or self._stopping or any(end.done() for end in ends)):
                self._round.again()
                async with bounded(_ANSWER_S):
                    queue = await channel.queue_declare(self._queue, passive=True)
                self._outage.stands_by(time.monotonic())
                self._backlog(queue.message_count or 0, bool(queue.consumer_count))
                await asyncio.wait({*ends, opened}, timeout=_BACKLOG_S, return_when=_FIRST)
        finally:
            opened.cancel()
            self._backlog(0, False)

    def _rest(self) -> None:
        """Nothing is taken in now."""
        self.consuming.clear()
        self._gate.rests(self)

    async def _open(
        self, channel: AbstractChannel, session: LibraryChannel | BulkChannel, prefetch: int
    ) -> None:
        """Open a consumer with this prefetch, unless all is to stop.

        Under a tag of its own each time: for one that it knows a quorum queue takes up where that one ended,
        and delivers again what is still held.
        """

        async def on_message(message: DeliveredMessage) -> None:
            assert message.delivery_tag is not None
            session.taken = message.delivery_tag
            self._deliver(Delivery(raw_of(message), message.delivery_tag, session))

        if self._stopping:
            return
        async with bounded(_ANSWER_S):
            await channel.basic_qos(prefetch_count=prefetch)
            answer = await channel.basic_consume(self._queue, on_message)
        self._tag = answer.consumer_tag

    async def _look(self, channel: AbstractChannel, session: LibraryChannel | BulkChannel) -> None:
        """Have the prefetch follow the pace, and let nothing wait here for too long."""
        now = time.monotonic()
        wanted = self._prefetch.look(now, session.settled, session.taken - session.settled)
        if self._stopping:
            return
        if wanted is not None:
            await self._change(channel, session, wanted)
        elif self._is_idle(now, session):
            if self._link.has_others:
                await self._reopen(channel, session, self._prefetch.count)
            elif not self._end.done():
                self._end.set_result(_AFRESH)
        elif stale := self._recall(now - self._longest_s):
            await self._give_back(stale)
            self._emitter.notice(
                "lane.given_back", lane=self._lane, count=len(stale), waited_s=self._longest_s
            )

    async def _change(
        self, channel: AbstractChannel, session: LibraryChannel | BulkChannel, prefetch: int
    ) -> None:
        """Go on with another prefetch, on the same channel: what is held stays, and is acked as before.

        A consumer keeps the prefetch that it was opened with, and a quorum queue knows none for the whole
        channel: so the consumer is ended and another one opened. For less, what has not started goes back:
        the broker does not count it for the new consumer, and would send as much again.
        """
        was = self._prefetch.count
        surplus = await self._reopen(channel, session, prefetch)
        if surplus is None:
            return
        self._emitter.notice(
            "lane.prefetch",
            lane=self._lane,
            prefetch=prefetch,
            was=was,
            per_s=round(self._prefetch.pace.per_s, 1),
            given_back=len(surplus),
        )

    def _is_idle(self, now: float, session: LibraryChannel | BulkChannel) -> bool:
        """Whether nothing has come for so long that the broker should prove that it still would bring it.

        A node that is parted from its cluster may keep the connection and the consumer, and deliver nothing:
        only to consume anew needs the others. And a queue that was deleted and made again at once may hand
        its messages to a consumer of the old one, which gets none of them: only a new channel ends that.
        """
        if (count := session.taken) != self._seen[0] or session.settled != count:
            self._seen = (count, now)
        if now - self._seen[1] < _IDLE_S:
            return False
        self._seen = (count, now)
        return True

    async def _reopen(
        self, channel: AbstractChannel, session: LibraryChannel | BulkChannel, prefetch: int
    ) -> list[Delivery] | None:
        """End the consumer and open another one; what was given back, or None where all is to stop."""
        async with self._changing:
            if self._stopping or self._tag is None:
                return None
            tag, self._tag = self._tag, None
            async with bounded(_ANSWER_S):
                await channel.basic_cancel(tag)
            surplus = self._recall(math.inf) if prefetch < self._prefetch.count else []
            await self._give_back(surplus)
            await self._open(channel, session, prefetch)
            self._prefetch.change(time.monotonic(), prefetch)
        return surplus

    @staticmethod
    async def _give_back(deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            await delivery.channel.nack(delivery.tag)

    async def cancel(self) -> None:
        """Stop consuming and wait for the broker's word. The channel stays open for the acks to come."""
        self._stopping = True
        try:
            async with self._changing:
                if self._channel is not None and self._tag is not None and not self._channel.is_closed:
                    async with bounded(_ANSWER_S):
                        await self._channel.basic_cancel(self._tag)
        except LOST:
            return
        finally:
            self._rest()
