"""What a lane's consumers hand their deliveries to: one inlet for each of its queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from acklast.apart import apart
from acklast.config.models import Lane as Settings
from acklast.config.quota import Quota
from acklast.drain import Tasks
from acklast.fair_intake import FairIntake
from acklast.intake import Intake
from acklast.lane import Lane
from acklast.pacing.prefetch import Prefetch
from acklast.pacing.sieve import Sieve
from acklast.pacing.turn import Turns
from acklast.settle import Delivery
from acklast_topology.names import Names
from acklast_topology.plan import FAIR_QUEUES

_MOVING: Final = 64
"""Deliveries that may be on their way to a fair queue at a time: each is a publish and its confirm. More gain
nothing, and before a slow broker each would wait longer for its confirm, up to the time limit."""
_TELL_S: Final = 5.0
"""How long moves are counted before the log tells of them."""
_REQUEUE_S: Final = 1.0
"""Pause before a delivery on which acklast itself failed is requeued, so that a defect does not spin."""


@dataclass(frozen=True, slots=True)
class Inlet:
    """One queue of a lane, how many of its deliveries to hold, and who takes them in."""

    queue: str
    prefetch: Prefetch
    follows: bool
    """Whether it follows the lane's pace, and what operators make of its concurrency."""
    take: Callable[[Delivery], None]
    recall: Callable[[float], list[Delivery]]


def open_intake(
    lane: Lane,
    settings: Settings,
    quota: Quota | None,
    names: Names,
    tasks: Tasks,
    start: Callable[[Delivery], None],
) -> tuple[Intake, list[Inlet]]:
    """The lane's intake, and the queues that feed it: the work queue first. ``quota``: its budget's."""
    if settings.fair_by is None:
        plain = Intake(lane.pacing.slots, start)
        return plain, [
            Inlet(names.work(lane.name), _following(settings, quota), True, plain.take, plain.recall)
        ]
    turns = lane.pacing.turns = Turns(lane.name, settings.weight, settings.fair_by)
    sieve = Sieve(settings.lookahead, len(FAIR_QUEUES))
    intake = FairIntake(lane.pacing.slots, start, Aside(lane, tasks).move, turns, sieve)
    return intake, list(_fair_inlets(lane, settings, quota, names, intake))


def _fair_inlets(
    lane: Lane, settings: Settings, quota: Quota | None, names: Names, intake: FairIntake
) -> Iterator[Inlet]:
    # The work queue is looked through as fast as it goes; the others are read at the lane's pace.
    steady = settings.lookahead + _MOVING
    yield Inlet(names.work(lane.name), Prefetch(steady, steady), False, intake.take, intake.recall)
    for number in FAIR_QUEUES:
        take, recall = intake.inlet(number)
        yield Inlet(names.fair(lane.name, number), _following(settings, quota), True, take, recall)


def _following(settings: Settings, quota: Quota | None) -> Prefetch:
    """A prefetch that follows the lane's pace."""
    per_s = quota.count / quota.period_s if quota else None
    return Prefetch(settings.prefetch, settings.concurrency, per_s)


class Aside:
    """Moves deliveries of one lane to its fair queues: published and confirmed, then acked."""

    def __init__(self, lane: Lane, tasks: Tasks) -> None:
        self._lane = lane
        self._tasks = tasks
        self._moved = 0
        self._leave = asyncio.Semaphore(_MOVING)

    def move(self, delivery: Delivery, key: str, queue: int) -> None:
        """Begin to move one; a drain waits for its end."""
        moving = apart(self._move(delivery, key, queue))
        self._tasks.add(delivery, moving)

    async def _move(self, delivery: Delivery, key: str, queue: int) -> None:
        lane = self._lane
        try:
            async with self._leave:
                moved = await lane.settler.set_aside(delivery, key, queue)
            if moved:
                self._count()
        except Exception as defect:
            # A defect of ours must neither vanish nor hold the delivery for ever.
            said = {"lane": lane.name, "tag": delivery.tag, **delivery.told()}
            lane.emitter.notice("delivery.defect", "error", **said, exc_info=defect)
            await asyncio.sleep(_REQUEUE_S)
            await lane.settler.give_back(delivery)
        finally:
            self._tasks.end(delivery)

    def _count(self) -> None:
        if not self._moved:
            asyncio.get_running_loop().call_later(_TELL_S, self._tell)
        self._moved += 1

    def _tell(self) -> None:
        moved, self._moved = self._moved, 0
        self._lane.emitter.notice("lane.set_aside", lane=self._lane.name, count=moved)
