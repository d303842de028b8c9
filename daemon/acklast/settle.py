"""The only module that acks, nacks or publishes an outcome. The ack comes last, and only when all is said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import chain, repeat
from math import inf
from typing import Any, Final, Protocol

from aiormq import spec

from acklast import faults
from acklast.pacing.turn import Turn
from acklast.telemetry.events import Emitter, Published
from acklast.telemetry.trace import Send as Sending
from acklast.telemetry.trace import Trace
from acklast.telemetry.traceparent import trace_id
from acklast_topology.carrier import carrier_properties
from acklast_topology.contract import Envelope, Malformed, RawMessage, parse
from acklast_topology.ladder import BUCKETS_S, bucket_for
from acklast_topology.names import Names, fair_key, wait_key
from acklast_topology.publish import Sent, Status

_REPUBLISH_S: Final = (0.1, 0.5, 1.0, 2.0)
"""How long to wait before a carrier that was not confirmed is published again; the last one repeats."""
_MOMENT_S: Final = 1.0
_SAY_AGAIN_S: Final = 60.0
"""How long nothing more is said of carriers that are not confirmed, whichever jobs they are of."""
_HAND_ON_S: Final = 30.0
"""How long the carrier of a job that goes on here stays away. After a crash it brings the job back."""


class ConsumeChannel(Protocol):
    """The channel on which a delivery came. A tag means nothing on any other."""

    @property
    def alive(self) -> bool:
        """Whether an ack sent now can still reach the broker."""

    async def ack(self, tag: int) -> bool:
        """Send an ack; False where the channel is dead: the broker delivers again."""

    async def nack(self, tag: int) -> bool:
        """Requeue a delivery; False where the channel is dead: the broker requeues by itself."""


class Send(Protocol):
    """Publishes one message, persistent, mandatory, confirmed, within a time limit."""

    async def __call__(
        self, exchange: str, routing_key: str, body: bytes, properties: spec.Basic.Properties
    ) -> Sent: ...


@dataclass(slots=True, eq=False)
class Delivery:
    """One message and where it came from. Itself alone: the same message, delivered again, is another."""

    raw: RawMessage
    tag: int
    channel: ConsumeChannel
    taken_at: float = field(default_factory=time.monotonic)
    """When it was taken in, on the monotonic clock, in seconds."""
    entered_at: float | None = None
    """When there were a slot and a permit for it; this and what follows on the same clock."""
    claimed_at: float | None = None
    """When the ledger had answered to the claim."""
    recorded_at: float | None = None
    """When the verdict was durable."""
    over: bool = False
    """It was acked or given back, and its tag means nothing any more."""
    handing_on: bool = False
    trace: Trace | None = None
    """Its place in a trace, once that is known."""
    turn: Turn | None = None
    """What its start is charged to; None where its lane's starts are all alike."""
    attempt: int | None = None
    """As the ledger counts, once it is claimed; so is the fence."""
    fence: int | None = None

    def told(self) -> dict[str, Any]:
        """What a log line says of its job: as much as is known of key, run, attempt, fence and trace."""
        return job_fields(parse(self.raw), attempt=self.attempt, fence=self.fence, trace=self.trace)


def job_fields(
    message: Envelope | Malformed,
    *,
    attempt: int | None = None,
    fence: int | None = None,
    trace: Trace | None = None,
) -> dict[str, Any]:
    """What a log line says of a job, besides its lane: what of this is known."""
    said = {
        "key": message.key,
        "run": message.run if isinstance(message, Envelope) else None,
        "attempt": attempt,
        "fence": fence,
        "trace_id": trace.trace_id if trace is not None else trace_id(message.raw.headers),
    }
    return {name: value for name, value in said.items() if value is not None}


async def nothing_to_repair() -> None:
    """For whoever may not declare anything."""


class Settler:
    """Settles the deliveries of one lane."""

    def __init__(
        self,
        lane: str,
        names: Names,
        send: Send,
        emitter: Emitter,
        *,
        abandoned: Callable[[], bool],
        repair: Callable[[], Awaitable[None]] = nothing_to_repair,
        buckets_s: tuple[int, ...] = BUCKETS_S,
    ) -> None:
        """``abandoned`` tells whether the drain's time is up: what is unconfirmed then stays unacked.

        ``repair`` is asked when a wait queue is gone: declare again what is missing.
        """
        self._lane = lane
        self._names = names
        self._send = send
        self._emitter = emitter
        self._abandoned = abandoned
        self._repair = repair
        self._buckets_s = buckets_s
        self._said: dict[Status, float] = {}
        """When it was last said that carriers do not get out like this."""
        self._unconfirmed_yet = False
        self._sending: dict[Delivery, float] = {}

    def stuck(self) -> int:
        """How many deliveries have waited for more than a moment for their carrier to be confirmed."""
        now = time.monotonic()
        return sum(now - since > _MOMENT_S for since in self._sending.values())

    async def ack(self, delivery: Delivery) -> bool:
        """Acknowledge a delivery whose verdict is recorded and acted on.

        False where its channel is dead: the next delivery finds the verdict and only replays the settling.
        Where the job went on under a carrier nothing is left to be done: the carrier finds the verdict.
        """
        if delivery.over:
            return True
        delivery.over = True
        acked = await delivery.channel.ack(delivery.tag)
        if not acked:
            # Told of each in its line of the settled job; when a channel dies there are hundreds of them.
            self._emitter.notice(
                "delivery.ack_lost", "debug", lane=self._lane, tag=delivery.tag, **delivery.told()
            )
        if faults.ARMED:
            faults.point("acked")
        return acked

    async def give_back(self, delivery: Delivery) -> bool:
        """Requeue a delivery that was not started. By nack: a reject counts towards the delivery limit."""
        if delivery.over:
            return True
        delivery.over = True
        return await delivery.channel.nack(delivery.tag)

    async def hand_on(self, delivery: Delivery, key: str) -> bool:
        """Put a carrier in the place of a delivery whose job goes on here; whether that was done.

        The broker ends the channel of whoever holds a delivery for too long. The claim lives on in the
        ledger: the carrier waits, and comes back to find it held, or the job decided.
        """
        if delivery.over or delivery.handing_on or not delivery.channel.alive:
            return False
        delivery.handing_on = True
        try:
            to = wait_key(self._lane, bucket_for(_HAND_ON_S, self._buckets_s))
            sent = await self._publish(delivery, key, to)
        finally:
            delivery.handing_on = False
        if sent.status is not Status.CONFIRMED:
            self._unconfirmed(delivery, sent)
            return False
        self._emitter.emit(Published("hand_on"))
        # Settled meanwhile: then the carrier only finds that out.
        return not delivery.over and await self.ack(delivery)

    async def wait(self, delivery: Delivery, key: str, wait_s: float) -> bool:
        """Send the job to wait, confirmed, then ack. False where the delivery was left to its redelivery.

        The carrier is published again until the broker confirms it: a publish that timed out may be there
        already, and the ledger lets one of the two through.
        """
        if delivery.over:
            return True  # a carrier waits already
        bucket = bucket_for(wait_s, self._buckets_s)
        return await self._send_on(delivery, key, wait_key(self._lane, bucket), "retry")

    async def set_aside(self, delivery: Delivery, key: str, queue: int) -> bool:
        """Move the job to one of the lane's fair queues, in the same way."""
        return await self._send_on(delivery, key, fair_key(self._lane, queue), "fair")

    async def _send_on(self, delivery: Delivery, key: str, to: str, kind: str) -> bool:
        self._sending[delivery] = time.monotonic()
        try:
            confirmed = await self._insist(delivery, key, to, kind)
        finally:
            del self._sending[delivery]
        if not confirmed:
            return False
        if faults.ARMED:
            faults.point("published")
        return await self.ack(delivery)

    async def _insist(self, delivery: Delivery, key: str, to: str, kind: str) -> bool:
        """Publish a carrier until it is confirmed; False where its delivery comes again anyway."""
        for pause_s in chain(_REPUBLISH_S, repeat(_REPUBLISH_S[-1])):
            if delivery.over:
                return True  # held for too long meanwhile, and back in its queue
            if not delivery.channel.alive or self._abandoned():
                return False
            sent = await self._publish(delivery, key, to)
            if sent.status is Status.CONFIRMED:
                self._emitter.emit(Published(kind))
                self._confirmed()
                return True
            self._unconfirmed(delivery, sent)
            if sent.status is Status.RETURNED:
                await self._repair()
            await asyncio.sleep(pause_s)
        raise AssertionError("the pauses do not end")

    async def _publish(self, delivery: Delivery, key: str, to: str) -> Sent:
        properties, exchange = carrier_properties(delivery.raw, key), self._names.route
        body, trace, began = delivery.raw.body, delivery.trace, time.monotonic()
        sent = await self._send(exchange, to, body, properties)
        if trace is not None and trace.exported:
            message_id, ended = properties.message_id or "", time.monotonic()
            trace.sends += (Sending(exchange, to, message_id, len(body), began, ended, sent.status.value),)
        return sent

    def _confirmed(self) -> None:
        if self._unconfirmed_yet:
            self._unconfirmed_yet = False
            self._emitter.notice("carrier.confirmed", lane=self._lane)

    def _unconfirmed(self, delivery: Delivery, sent: Sent) -> None:
        """Said of the first of all the jobs that wait for the same reason, and now and then again."""
        now = time.monotonic()
        known = now - self._said.get(sent.status, -inf) < _SAY_AGAIN_S
        if not known:
            self._said[sent.status], self._unconfirmed_yet = now, True
        self._emitter.notice(
            "carrier.unconfirmed",
            "debug" if known else "warning",
            lane=self._lane,
            status=sent.status,
            detail=sent.detail,
            **delivery.told(),
        )
