"""The letterbox: what the broker set aside by itself becomes a dead letter of the ledger, where people look.

``dead`` holds what no verdict reached (a delivery limit, a policy that is not ours), ``unrouted`` what came
for a lane that is not there. Both are the safety net, nearly always empty. The letter is committed before the
ack: a crash in between files the message again, and it is one letter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, assert_never

from acklast import faults, letters
from acklast.apart import apart
from acklast.broker import Link
from acklast.consumer import Consumer
from acklast.delivery import claim_of, insist_on
from acklast.drain import Tasks
from acklast.inlets import Inlet
from acklast.lane import Abandoned, Lane, Returned
from acklast.ledger.api import Conflict, Decided, Fresh, Held, Letter, NotDue, Record, Recorded, Session
from acklast.outcome import Bury, Hold
from acklast.pacing.prefetch import Prefetch
from acklast.policy import OnUnknown
from acklast.settle import Delivery, Send, Settler
from acklast.telemetry.events import Emitter, Event, Notice
from acklast_topology import contract
from acklast_topology.carrier import carrier_properties
from acklast_topology.contract import Envelope, Malformed, Reason
from acklast_topology.deaths import Death, death_of
from acklast_topology.names import Names, valid_name, work_key
from acklast_topology.publish import Status

_PREFETCH: Final = 20
_AGAIN_S: Final = 30.0
"""How long a job that somebody works on, or that is not due, stays away before it is looked at again."""
_TELL_S: Final = 10.0
"""How long messages that are sent on are only counted, after one that was told of."""
_REQUEUE_S: Final = 1.0
"""Pause before a delivery that could not be filed is requeued."""


def quietly(emitter: Emitter) -> Emitter:
    """For the letterbox's consumers: what they say of themselves is not said of a lane."""

    wrong: set[Any] = set()

    def rename(event: Event) -> None:
        if isinstance(event, Notice) and event.name.startswith("lane."):
            # The lane has said it of the connection that they share; only what is the queue's own matters,
            # and that it is well again.
            queue, level = event.fields.get("queue"), "debug"
            if event.level == "error":
                level = "error"
                wrong.add(queue)
            elif event.name == "lane.consuming" and queue in wrong:
                level = "info"
                wrong.discard(queue)
            event = Notice(f"letterbox.{event.name.removeprefix('lane.')}", level, event.fields)
        emitter.emit(event)

    return Emitter(rename)


@dataclass(frozen=True, slots=True)
class Letterbox:
    """Takes in the dead queues of this daemon's lanes, and the namespace's unrouted queue."""

    names: Names
    lanes: list[Lane]
    send: Send
    settler: Settler
    """For what has no lane."""
    tasks: Tasks
    fan_outs: Mapping[str, Sequence[str]]
    """The lanes of each fan-out."""

    def consumers(
        self,
        link: Link,
        emitter: Emitter,
        fit: Callable[[str], Awaitable[str]],
        on_change: Callable[[str, str], None] = lambda queue, why: None,
    ) -> list[Consumer]:
        """One for each queue. ``fit`` tells why a queue may not be consumed as it is; ``on_change`` is told
        the queue and why it is not consumed, or nothing where it is."""
        quiet = quietly(emitter)
        return [
            Consumer(
                lane,
                inlet.queue,
                inlet.prefetch,
                link,
                inlet.take,
                inlet.recall,
                quiet,
                partial(fit, inlet.queue),
                on_change=partial(on_change, inlet.queue),
            )
            for lane, inlet in self._inlets()
        ]

    def _inlets(self) -> list[tuple[str, Inlet]]:
        """The queues to consume, each with the lane that it belongs to, if any."""
        dead = [(lane.name, self._inlet(self.names.dead(lane.name), _Dead(lane))) for lane in self.lanes]
        # Any lane will do for asking the ledger: it is the same one.
        served = frozenset(lane.name for lane in self.lanes)
        sent_on = _SentOn(self.lanes[0].emitter)
        unrouted = _Unrouted(
            self.lanes[0], self.names, self.send, self.settler, served, sent_on, self.fan_outs
        )
        return [*dead, ("", self._inlet(self.names.unrouted, unrouted))]

    def _inlet(self, queue: str, filing: _Dead | _Unrouted) -> Inlet:
        def take(delivery: Delivery) -> None:
            task = apart(self._file(filing, delivery))
            self.tasks.add(delivery, task)

        return Inlet(queue, Prefetch(_PREFETCH, _PREFETCH), False, take, lambda before: [])

    async def _file(self, filing: _Dead | _Unrouted, delivery: Delivery) -> None:
        emitter = filing.lane.emitter
        try:
            await filing.file(delivery)
        except Returned:
            return  # the copy in its queue is the one to work on
        except Abandoned:
            said = {"lane": filing.lane.name, "tag": delivery.tag, **delivery.told()}
            emitter.notice("delivery.abandoned", "warning", **said)
        except Exception as defect:
            # A defect of ours must neither vanish nor hold the delivery for ever.
            said = {"lane": filing.lane.name, "tag": delivery.tag, **delivery.told()}
            emitter.notice("delivery.defect", "error", **said, exc_info=defect)
            await asyncio.sleep(_REQUEUE_S)
            await self.settler.give_back(delivery)
        finally:
            self.tasks.end(delivery)


async def _keep(lane: Lane, letter: Letter) -> None:
    """Commit the letter of a message without a job. The same message twice is one letter."""

    def bury() -> Awaitable[None]:
        return lane.ledger.bury_stray(letter, worker=lane.worker, version=lane.version)

    await lane.insist(bury)
    _filed(lane, letter)


def _filed(lane: Lane, letter: Letter) -> None:
    if faults.ARMED:
        faults.point("recorded")
    of: dict[str, Any] = {"lane": letter.lane, "key": letter.key, "run": letter.run, "reason": letter.reason}
    lane.emitter.notice("letter.filed", "warning", **of, detail=letter.detail)


@dataclass(frozen=True, slots=True)
class _Dead:
    """Files what the broker dead-lettered of one lane. Its job, if it is open, ends with it."""

    lane: Lane

    async def file(self, delivery: Delivery) -> None:
        lane, death = self.lane, death_of(delivery.raw.headers)
        envelope = contract.parse(delivery.raw)
        if isinstance(envelope, Malformed):
            await _keep(lane, letters.of_stranded(lane.name, envelope, death.reason, death.detail))
            await lane.settler.ack(delivery)
        elif envelope.key in lane.active:
            await lane.settler.wait(delivery, envelope.key, _AGAIN_S)
        else:
            await self._end_job(delivery, envelope, death)

    async def _end_job(self, delivery: Delivery, envelope: Envelope, death: Death) -> None:
        """By a claim like any other: it tells what became of the job, and nobody else can start it."""
        lane = self.lane
        session, claimed = await claim_of(lane, delivery, envelope)
        match claimed:
            case Decided():
                # Its account is complete: this was a second copy.
                await lane.settler.ack(delivery)
            case NotDue() | Held():
                # It is not over: the copy goes back among the lane's, and finds out.
                await lane.settler.wait(delivery, envelope.key, _AGAIN_S)
            case Conflict():
                await _keep(lane, letters.of_stranded(lane.name, envelope, death.reason, death.detail))
                await lane.settler.ack(delivery)
            case Fresh():
                await self._bury(delivery, envelope, death, session, claimed)

    async def _bury(
        self, delivery: Delivery, envelope: Envelope, death: Death, session: Session, claimed: Fresh
    ) -> None:
        lane = self.lane
        # Whether an attempt had its effect nobody knows: that is not for the broker to decide.
        unsure = claimed.ambiguous and lane.policy.on_unknown is not OnUnknown.RETRY
        verdict = (Hold if unsure else Bury)(death.reason, death.detail)
        letter = letters.of_job(lane.name, envelope, death.reason, death.detail)
        record = Record(
            lane=lane.name,
            key=envelope.key,
            fence=claimed.fence,
            verdict=verdict,
            outcome="unknown" if unsure else "permanent",
            reason=death.reason,
            detail=death.detail,
            started_at=claimed.now,
            effect_at=claimed.now,
            letter=letter,
            frees=lane.custody,
        )
        if await insist_on(lane, envelope, session, record) is Recorded.CLAIM_LOST:
            await lane.settler.wait(delivery, envelope.key, _AGAIN_S)
            return
        _filed(lane, letter)
        await lane.settler.ack(delivery)


class _SentOn:
    """Tells of the first message that was sent on, and of those that follow it by their number."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._more: dict[str, int] = {}

    def count(self, lane: str, key: str) -> None:
        if lane in self._more:
            self._more[lane] += 1
            return
        self._more[lane] = 0
        self._emitter.notice("unrouted.sent_on", lane=lane, key=key, count=1)
        asyncio.get_running_loop().call_later(_TELL_S, self._tell, lane)

    def _tell(self, lane: str) -> None:
        if more := self._more.pop(lane):
            self._emitter.notice("unrouted.sent_on", lane=lane, count=more)


@dataclass(frozen=True, slots=True)
class _Unrouted:
    """Sends on what came before its lane was there, and files the rest: a publisher's typo, mostly."""

    lane: Lane
    names: Names
    send: Send
    settler: Settler
    served: frozenset[str]
    """The lanes of this daemon: where the queue of one is gone, it is about to be declared again."""
    sent_on: _SentOn
    fan_outs: Mapping[str, Sequence[str]]

    async def file(self, delivery: Delivery) -> None:
        to = delivery.raw.routing_key.partition(".")[0]
        to = to if valid_name(to) else ""
        envelope = contract.parse(delivery.raw)
        if to and isinstance(envelope, Envelope) and await self._sent_on(delivery, envelope, to):
            return
        detail = f"no lane is bound for routing key {delivery.raw.routing_key!r}"
        await _keep(self.lane, letters.of_stranded(to, envelope, Reason.UNROUTED, detail))
        await self.settler.ack(delivery)

    async def _sent_on(self, delivery: Delivery, envelope: Envelope, to: str) -> bool:
        """Whether the lane is there after all: then the message is in its work queue, or tried again.

        Of a fan-out each lane gets it. One that could not take it has the others get it again: their ledger
        lets one copy through.
        """
        for lane in self.fan_outs.get(to, (to,)):
            properties = carrier_properties(delivery.raw, envelope.key)
            sent = await self.send(self.names.route, work_key(lane), delivery.raw.body, properties)
            match sent.status:
                case Status.CONFIRMED:
                    continue
                case Status.RETURNED if to not in self.served and to not in self.fan_outs:
                    return False
                case Status.UNKNOWN | Status.RETURNED:
                    await asyncio.sleep(_REQUEUE_S)
                    await self.settler.give_back(delivery)
                    return True
                case Status.REFUSED:
                    return False
                case _:
                    assert_never(sent.status)
        self.sent_on.count(to, envelope.key)
        await self.settler.ack(delivery)
        return True
