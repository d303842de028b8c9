"""Works on redrives: releases their letters at a pace, looks what becomes of them, and stops where it must.

The ledger has all that is known of a redrive, and every transition is a commit of its own: whichever daemon
is next goes on from there. What a crash leaves released and unpublished is published, perhaps twice; the
ledger lets one copy through, as always.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, Final, assert_never

from aio_pika.abc import AbstractConnection

from acklast import faults
from acklast.canary import (
    Ask,
    Decision,
    Finished,
    GoOn,
    Live,
    Stop,
    Wait,
    decide,
    earned,
    pace_per_s,
    quantity,
)
from acklast.chores import Chore
from acklast.config import Config
from acklast.custody import raw_of
from acklast.errors import AcklastError, BrokerUnavailable, LedgerUnavailable
from acklast.ledger.lease import Lease
from acklast.ledger.redriving import BATCH, Attempted, Letter, Mark, Redrive, Redriving, Released, Rules
from acklast.reconciler import counts
from acklast.resend import again
from acklast.settle import Send
from acklast.telemetry.events import Emitter, Published
from acklast.telemetry.trace import Send as Sending
from acklast.telemetry.trace import posted_of
from acklast.unquoted import unquoted
from acklast_topology.calls import only_real_cancellation
from acklast_topology.carrier import carrier_properties
from acklast_topology.names import work_key
from acklast_topology.plan import FAIR_QUEUES
from acklast_topology.publish import Status

BUSY_S: Final = 0.25
"""How long to pause while a redrive gets on."""
_IDLE_S: Final = 1.0
_LIVELY_S: Final = 10.0
"""One that has stood still for longer waits for retries, or for a person."""
_LIVE_S: Final = 5.0
"""How often to look what the lane's other jobs come to."""
_AGAIN_S: Final = (0.5, 1.0, 2.0, 5.0)

_VERDICTS: Final = {GoOn: "went_on", Stop: "stopped", Ask: "asks", Finished: "finished"}


class NotSent(AcklastError):  # noqa: N818 - said of a message, and tried again
    """The broker has not taken a letter's message, or does not answer at all."""


@dataclass(slots=True)
class _Work:
    """What is known of one redrive beside the ledger: nothing that the next daemon would miss."""

    at: float
    """When the last look was, on the monotonic clock."""
    moved_at: float
    """When something was last released or known."""
    saved: float = 0.0
    first: int = 1
    """No letter before this position is left to try. What was left for later lies after it."""
    step: int = -1
    mark: Mark | None = None
    live: Live | None = None
    live_at: float = float("-inf")
    waited: bool = False
    """Other jobs waited at the last look: once may be in passing."""


class Redriver(Chore):
    """The daemon's own, for the redrives of its lanes."""

    name = "redrive"

    def __init__(
        self,
        config: Config,
        redriving: Redriving,
        lease: Lease,
        connect: Callable[[], Awaitable[AbstractConnection]],
        send: Send,
        emitter: Emitter,
        *,
        worker: str,
        version: str,
        most: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``most``: how often one job may be tried again. ``version``: of what works on the lanes."""
        self._lanes = list(config.lanes)
        self._names = config.names
        self._queues = {name: _queues(config, name) for name in config.lanes}
        self._rules = Rules(most, version)
        self._ledger = redriving
        self._lease = lease
        self._connect = connect
        self._send = send
        self._emitter = emitter
        self._worker = worker
        self._clock = clock
        self._works: dict[int, _Work] = {}

    async def close(self) -> None:
        """Stop, and wait until its connection is gone. What is released and not published stays so."""
        await super().close()
        await self._ledger.close()

    async def run(self) -> None:
        """Work for ever; while the ledger or the broker is away try again, and say so once."""
        tries = 0
        while True:
            try:
                with only_real_cancellation():
                    busy = await self.once()
                self.fine()
                tries = 0
                await asyncio.sleep(BUSY_S if busy else _IDLE_S)
                continue
            except Exception as error:
                # Not only an outage: a defect here must not end it for good, in silence.
                self.complain(error)
            await asyncio.sleep(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)])
            tries += 1

    async def once(self) -> bool:
        """One look at each redrive that is this daemon's; whether to look again soon.

        Raises:
            LedgerUnavailable, NotSent: one of both is away.
        """
        if not self._lease.live:
            return False
        session = (await self._lease.current()).id
        owned = await self._ledger.own(session, self._lanes)
        if not owned:
            self._works.clear()
            return False
        if faults.ARMED:
            faults.point("owned")
        self._works = {one.id: self._works.get(one.id) or self._new_work() for one in owned}
        failed: Exception | None = None
        for one in owned:
            try:
                await self._look_after(one, session, self._works[one.id])
            except LedgerUnavailable:
                raise
            except Exception as error:
                failed = error  # of this one: the others go on
        if failed is not None:
            raise failed
        return any(self._clock() - work.moved_at < _LIVELY_S for work in self._works.values())

    def _new_work(self) -> _Work:
        now = self._clock()
        return _Work(at=now, moved_at=now)

    async def _look_after(self, one: Redrive, session: int, work: _Work) -> None:
        if one.standing.out and (settled := await self._ledger.settle(one.id, session)) is not None:
            if faults.ARMED:
                faults.point("counted")
            one, work.moved_at = settled, self._clock()
        await self._publish(one, session)
        if not one.running:
            return
        if await self._judge(one, session, work):
            work.moved_at = self._clock()
        elif one.standing.room:
            await self._release(one, session, work)

    # --- decide -------------------------------------------------------------------------------------

    async def _judge(self, one: Redrive, session: int, work: _Work) -> bool:
        """Whether the redrive has gone elsewhere: then it is looked at again before anything is released."""
        await self._watch(one, work)
        decision = decide(one.standing, work.live)
        if faults.ARMED:
            faults.point("weighed")
        match decision:
            case Wait():
                return False
            case GoOn(step):
                if await self._tell(one, session, work, decision, "running", step):
                    if faults.ARMED:
                        faults.point("stepped")
                    self._say("redrive.step", "info", one, step=step + 1, of=len(one.standing.steps))
            case Stop(why):
                if await self._tell(one, session, work, decision, "stopped", one.standing.step):
                    self._say("redrive.stopped", "warning", one, why=why)
            case Ask(why):
                if await self._tell(one, session, work, decision, "asking", one.standing.step):
                    self._say("redrive.asks", "warning", one, why=why)
            case Finished():
                await self._finish(one, session, work, decision)
            case _:
                assert_never(decision)
        return True

    async def _finish(self, one: Redrive, session: int, work: _Work, decision: Finished) -> None:
        if await self._tell(one, session, work, decision, "finished", one.standing.step):
            if faults.ARMED:
                faults.point("finished")
            self._say("redrive.finished", "info", one)

    async def _watch(self, one: Redrive, work: _Work) -> None:
        """Look now and then what the lane's other jobs come to since the step began."""
        if work.step != one.standing.step:
            work.step, work.mark, work.live, work.live_at = one.standing.step, None, None, float("-inf")
        if self._clock() - work.live_at >= _LIVE_S:
            work.live_at = self._clock()
            live, mark = await self._ledger.live(one, work.mark)
            if work.mark is None:
                work.mark = mark
            else:
                work.live = live

    async def _tell(
        self, one: Redrive, session: int, work: _Work, decision: Decision, status: str, step: int
    ) -> bool:
        now = one.standing
        said: dict[str, Any] = {
            "at": one.now.isoformat(),
            "verdict": _VERDICTS[type(decision)],
            "why": getattr(decision, "why", None),
            "step": now.step,
            "released": now.released,
            "done": now.done,
            "same": now.same,
            "other": now.other,
            "refused": now.refused,
            "kinds": await self._ledger.kinds(one.id, one.lane, work.mark.at if work.mark else one.now),
            "live": None if work.live is None else asdict(work.live),
            "accepted": asdict(now.accepted),
        }
        action = None if isinstance(decision, GoOn) else f"redrive.{said['verdict']}"
        return await self._ledger.tell(one, session, status, step, said, worker=self._worker, action=action)

    def _say(self, event: str, level: str, one: Redrive, **more: Any) -> None:
        now = one.standing
        counts = {"released": now.released, "done": now.done, "same": now.same, "other": now.other}
        counts["refused"] = now.refused
        self._emitter.notice(event, level, redrive=one.id, lane=one.lane, **more, **counts)

    # --- release ------------------------------------------------------------------------------------

    async def _release(self, one: Redrive, session: int, work: _Work) -> None:
        """Queue again as many jobs as pace, step and the lane's other jobs leave room for."""
        count, looked = await self._room(one, work), 0
        first, skipped = work.first, False
        while count > 0 and looked < BATCH:
            if not (letters := await self._ledger.next(one.id, first, count)):
                return
            tried = [Attempted(letter.position, again(letter, letter.key)) for letter in letters]
            answer = await self._ledger.release(one, session, tried, self._rules)
            if answer is None:
                return  # somebody else has it, or a person has stopped it
            if faults.ARMED:
                faults.point("released")
            released = answer.redrive
            self._say_refused(answer)
            number = released.standing.released - one.standing.released
            self._say("redrive.released", "debug", released, count=number)
            one, looked, count = released, looked + len(tried), count - number
            work.saved -= number
            if number:
                work.moved_at = self._clock()
            await self._publish(one, session)
            first, skipped = tried[-1].position + 1, skipped or answer.later > 0
            if not skipped:
                work.first = first

    def _say_refused(self, answer: Released) -> None:
        """Of what a person has decided nobody looks for the end: the job is where it was, and waits again."""
        if answer.refused:
            level = "warning" if answer.decided else "info"
            told = {"decided": answer.decided, "why": answer.refused, "key": answer.example}
            self._say("redrive.refused", level, answer.redrive, count=sum(answer.refused.values()), **told)

    async def _room(self, one: Redrive, work: _Work) -> int:
        traffic, queued, ours = await self._ledger.traffic(one.id, one.lane)
        waits = traffic.held + await self._ready(one.lane) > ours
        pace = pace_per_s(one.rate_per_s, traffic, live_waits=waits and work.waited)
        now, work.waited = self._clock(), waits
        work.saved, work.at = earned(work.saved, pace, now - work.at), now
        return quantity(one.standing, work.saved, pace, queued)

    async def _ready(self, lane: str) -> int:
        """How many of the lane's jobs no daemon holds yet.

        Raises:
            NotSent: the broker does not say.
        """
        try:
            ready, _ = await counts(await self._connect(), self._queues[lane])
        except (ConnectionError, TimeoutError, BrokerUnavailable) as error:
            raise NotSent(f"the broker does not answer: {unquoted(error)}", "It is tried again") from error
        return ready or 0

    async def _publish(self, one: Redrive, session: int) -> None:
        """Publish what is released and not known to be in the broker.

        Raises:
            NotSent: the broker has not taken all of it.
        """
        if not one.standing.out or not (letters := await self._ledger.unsent(one.id)):
            return
        answers = await asyncio.gather(*(self._publish_one(one.lane, letter) for letter in letters))
        if faults.ARMED:
            faults.point("resent")
        away = [why for why in answers if why is not None]
        known = [letter.position for letter, why in zip(letters, answers, strict=True) if why is None]
        if known:
            await self._ledger.sent(one.id, session, known)
            if faults.ARMED:
                faults.point("noted")
        if away:
            what = f"{len(away)} messages of lane {one.lane!r} were not published: {away[0]}"
            raise NotSent(what, "It is tried again")

    async def _publish_one(self, lane: str, letter: Letter) -> str | None:
        """Why it is not in the broker for certain; None where it is, or need not be."""
        message = again(letter, letter.key) if letter.due else None
        if message is None:
            return None
        kept, _ = message
        properties = carrier_properties(raw_of(kept), letter.key)
        to, began = work_key(lane), time.monotonic()
        sent = await self._send(self._names.route, to, kept.body, properties)
        if sent.status is not Status.CONFIRMED:
            return f"{sent.status}: {sent.detail}"
        name, size, ended = properties.message_id or "", len(kept.body), time.monotonic()
        posted = Sending(self._names.route, to, name, size, began, ended, sent.status.value)
        told = posted_of(properties.headers or {}, lane, letter.key, posted)
        self._emitter.emit(Published("redrive", posted=told))
        return None


def _queues(config: Config, lane: str) -> list[str]:
    """Where the lane's jobs wait for their turn."""
    fair = FAIR_QUEUES if config.lanes[lane].fair_by is not None else ()
    return [config.names.work(lane), *(config.names.fair(lane, number) for number in fair)]
