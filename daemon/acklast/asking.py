"""Asks the job types of unresolved jobs whether the effect has happened, as people want it found out.

A question stands in line with the lane's jobs: it takes a slot and a permit, since at the provider's meter a
call is a call. It is taken once both are there, so that what cannot be asked here is left to another daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from acklast import faults
from acklast.chores import Chore
from acklast.drain import Tasks
from acklast.errors import LedgerUnavailable, SessionLost
from acklast.inquiry import find_out
from acklast.lane import Abandoned, Lane
from acklast.ledger.api import Session
from acklast.ledger.reconciling import Answer, Effect, Found, Question, Questions, Subject
from acklast.pacing.lanes import Entry
from acklast.pacing.slots import Draining
from acklast.telemetry.events import Emitter
from acklast_topology.calls import only_real_cancellation

LOOK_S: Final = 0.5
_AGAIN_S: Final = 5.0
"""How often to look while that goes wrong."""
_PART: Final = 4
"""At most one slot in so many asks, and one at least: live jobs come first."""


class Asking(Chore):
    """Answers questions about the jobs of these lanes until it is closed."""

    name = "asking"

    def __init__(
        self,
        questions: Questions,
        lanes: Sequence[Lane],
        tasks: Tasks,
        emitter: Emitter,
        *,
        chance: Callable[[], float],
    ) -> None:
        """``tasks``: what a drain waits for."""
        self._questions = questions
        self._lanes = lanes
        self._tasks = tasks
        self._emitter = emitter
        self._chance = chance
        self._askers: dict[asyncio.Task[None], Lane] = {}
        self._busy: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Take no more questions; those that are being asked go on."""
        super().stop()
        for task in self._askers.keys() - self._busy:
            task.cancel()

    async def close(self) -> None:
        await super().close()
        for task in self._askers:
            task.cancel()
        await asyncio.gather(*self._askers, return_exceptions=True)
        await self._questions.close()

    async def run(self) -> None:
        """Look for ever; while the ledger is away try again, and say so once."""
        while True:
            try:
                with only_real_cancellation():
                    await self._round()
                self.fine()
            except Exception as error:
                # Not only an outage: a defect here must not end it for good, in silence.
                self.complain(error)
            await asyncio.sleep((_AGAIN_S if self._complained else LOOK_S) * (0.5 + self._chance()))

    async def _round(self) -> None:
        await self._questions.retry()
        session = await self._lanes[0].lease.current()
        waiting = await self._questions.waiting(session.id)
        for lane in self._lanes:
            count = waiting.get(lane.name, 0)
            # A daemon without jobs may hold no permit: it is to get some for these.
            lane.pacing.saw_backlog(f"questions of {lane.name}", count, False)
            askers = sum(other is lane for other in self._askers.values())
            for _ in range(askers, min(count, max(1, lane.pacing.slots.count // _PART))):
                task = asyncio.create_task(self._ask_all(lane), name="ask")
                self._askers[task] = lane
                task.add_done_callback(self._askers.pop)

    async def _ask_all(self, lane: Lane) -> None:
        """Ask as long as there are questions, and something may start."""
        try:
            while not lane.drain.started.is_set() and await self._ask(lane):
                pass
        except (Draining, Abandoned, SessionLost, LedgerUnavailable):
            pass  # the next look finds what is left
        except Exception as defect:
            self._emitter.notice("asking.defect", "error", lane=lane.name, exc_info=defect)
            await asyncio.sleep(_AGAIN_S)

    async def _ask(self, lane: Lane) -> bool:
        """Ask the next question; whether there was one."""
        await lane.pacing.gate.opened.wait()
        with await lane.pacing.enter() as entry:
            session = await lane.lease.current()
            question = await self._questions.take(lane.name, session.id)
            if question is not None:
                await self._settle(lane, session, entry, question)
        return question is not None

    async def _settle(self, lane: Lane, session: Session, entry: Entry, question: Question) -> None:
        """Ask, and put down what was found. From here on a drain waits, and cuts the asking alone."""
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            with self._tasks.beside(task):
                if faults.ARMED:
                    faults.point("question_taken")
                subject = await lane.insist(self._questions.subject, question)
                if subject is None:
                    await lane.insist(self._questions.supersede, question)
                elif (answer := await self._found(lane, session, entry, subject)) is None:
                    await lane.insist(self._questions.release, question)
                else:
                    await self._record(lane, question, subject, answer)
        finally:
            self._questions.done_with(question)
            self._busy.discard(task)

    async def _found(self, lane: Lane, session: Session, entry: Entry, subject: Subject) -> Answer | None:
        try:
            return await find_out(lane, session, entry, subject)
        except Exception as defect:
            # Left as it is it would be asked again and again.
            self._emitter.notice("asking.defect", "error", lane=lane.name, **_told(subject), exc_info=defect)
            return Answer(Found.UNKNOWN, Effect.UNRESOLVED, subject.now, subject.now, code="defect")

    async def _record(self, lane: Lane, question: Question, subject: Subject, answer: Answer) -> None:
        try:
            in_time = await lane.insist(self._questions.answer, question, answer)
        except Abandoned:
            raise
        except Exception as refusal:
            self._emitter.notice(
                "record.refused", "error", lane=lane.name, **_told(subject), exc_info=refusal
            )
            answer = replace(
                answer,
                found=Found.UNKNOWN,
                effect=Effect.UNRESOLVED,
                result=None,
                code="unrecordable",
                detail="",
                buried=None,
            )
            in_time = await lane.insist(self._questions.answer, question, answer)
        if faults.ARMED:
            faults.point("question_recorded")
        self._emitter.notice(
            "reconcile.found",
            lane=lane.name,
            **_told(subject),
            letter=question.letter,
            found=answer.found.value,
            code=answer.code or None,
            effect=(answer.effect if in_time else Effect.SUPERSEDED).value,
        )


def _told(subject: Subject) -> dict[str, Any]:
    """What a log line says of the job that is asked about, besides its lane: what of this is known."""
    entry = subject.letter.entry
    said = {
        "key": entry.key,
        "run": entry.run,
        "attempt": subject.attempts,
        "fence": subject.fence,
        "trace_id": entry.trace_id,
    }
    return {name: value for name, value in said.items() if value is not None}
