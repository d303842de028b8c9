"""A stage on which a script of faults is played, and which writes down what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, Final, TypeVar, assert_never

from acklast.ledger.api import Record, Recorded
from acklast.outcome import Retry
from acklast.telemetry.events import Event, Flushed, Notice, Published, Settled
from acklast.testing.process import HERE, Here, Killed, Process
from acklast.testing.script import (
    Crash,
    Disconnect,
    Drain,
    Duplicate,
    Freeze,
    LedgerAway,
    Script,
    Struck,
)
from acklast.testing.setting import Setting
from acklast.testing.stage import Heir, Stage
from acklast.testing.step import Step
from acklast.testing.story import Story
from acklast.testing.virtual import elapse
from acklast_topology.contract import KEY_HEADER, RawMessage
from acklast_topology.job import Job
from acklast_topology.names import work_key

T = TypeVar("T")
_SAID: Final = ("warning", "error")


class Play(Stage):
    """``connections`` makes what ``ctx.transaction`` yields."""

    def __init__(
        self,
        setting: Setting,
        epoch: datetime,
        random: Random,
        connections: Callable[[], Any],
        *,
        script: Script,
    ) -> None:
        super().__init__(setting, epoch, random)
        self.story = Story(self.elapsed_s)
        self.script = script
        self._connections = connections
        self._ledger_away_until_s = 0.0
        self._due: set[asyncio.Task[None]] = set()
        self._relayed = 0

    # --- what the test does -------------------------------------------------------------------------

    def post(self, job: Job, *, copies: int = 1) -> None:
        """Publish a job, as any publisher does."""
        for _ in range(copies):
            self._publish(job, "published", "published")

    def _publish(self, job: Job, name: str, text: str) -> None:
        """To its lane, or to each lane of its fan-out; to none where it is not of this application."""
        raw = replace(job.raw(), timestamp=self.now().replace(microsecond=0))
        for lane in self.setting.fan_out.get(job.lane, (job.lane,)):
            self.story.add(name, text, place=(lane, job.key))
            if lane in self.setting.lanes:
                self.broker.publish(work_key(lane), raw)

    def later(self, seconds: float, act: Callable[[], Any]) -> None:
        """Do something when so much time has passed; until then the play is not over."""
        self._at_work(self._after(seconds, act))

    @staticmethod
    async def _after(seconds: float, act: Callable[[], Any]) -> None:
        await elapse(seconds)
        act()

    def _at_work(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.spawn(lambda: work)
        self._due.add(task)
        task.add_done_callback(self._due.discard)

    async def idle(self) -> None:
        """Wait until nothing is left that happens by itself."""
        await self.quiet()
        while self._due:
            await asyncio.wait(self._due, return_when=asyncio.FIRST_COMPLETED)
            await self.quiet()

    # --- faults -------------------------------------------------------------------------------------

    async def step(
        self, process: Process, step: Step, act: Callable[[], Awaitable[T]], *, lost: Callable[[bool], T]
    ) -> T:
        # The others' turn: nothing outside of a process answers at once.
        await asyncio.sleep(0)
        await process.breathe()
        if step.on == "ledger" and self.elapsed_s() < self._ledger_away_until_s:
            return lost(False)
        return await act()

    def reached(self, point: str) -> None:
        """A delivery has come to a point of its life: what was planned for it strikes."""
        here = HERE.get()
        process = here.process
        if process.dead:
            raise Killed(process.name)
        for fault in self.script.striking(point, here.lane, key_of(here.delivery.raw)):
            strike = partial(self._strike, fault, here)
            if fault.after_s:
                self.later(fault.after_s, strike)
                continue
            strike()
            if process.dead:
                raise Killed(process.name)

    def _strike(self, fault: Struck, here: Here) -> None:
        process, raw = here.process, here.delivery.raw
        said = f"fault: {type(fault).__name__} at {fault.at!r} of {here.lane}/{key_of(raw)}"
        self.story.add("fault", said, process.name, fault=fault)
        if process.dead:
            return
        match fault:
            case Crash(heir=heir):
                self.crash(process, heir)
            case Freeze():
                process.lose_channels()
                self.freeze(process)
            case Drain():
                self._at_work(process.drain(partial(self.follow, process, Heir.SAME)))
            case Disconnect():
                process.lose_channels()
            case Duplicate():
                self.broker.publish(work_key(here.lane), raw)
            case LedgerAway(for_s=for_s):
                self._ledger_away_until_s = self.elapsed_s() + for_s
            case _:
                assert_never(fault)

    # --- hears --------------------------------------------------------------------------------------

    def begin(self, instance: str | None = None) -> Process:
        process = super().begin(instance)
        self.story.add("began", f"a daemon begins, instance {process.instance}", process.name)
        return process

    def died(self, process: Process) -> None:
        self.story.add(
            "died", "the daemon has drained" if process.draining else "the daemon is dead", process.name
        )

    def said(self, process: Process, event: Event) -> None:
        match event:
            case Settled():
                self._settled(process, event)
            case Notice(level=level) if level in _SAID and not process.dead:
                fields = ", ".join(f"{name} {value}" for name, value in event.fields.items())
                self.story.add("notice", f"{event.name}: {fields}", process.name, notice=event)
            case Notice() | Flushed() | Published():
                pass

    def _settled(self, process: Process, event: Settled) -> None:
        lost = "" if event.acked else ", and the ack is lost"
        self.story.add(
            "settled",
            f"the delivery is settled: {event.disposition}{lost}",
            process.name,
            (event.lane, event.key or ""),
            disposition=event.disposition,
            outcome=event.outcome,
            reason=event.reason,
            attempt=event.attempt,
            ambiguous=event.ambiguous,
            acked=event.acked,
        )

    def recorded(self, process: Process, record: Record, answer: Recorded) -> None:
        verdict = record.verdict
        wait_s = (verdict.at - self.now()).total_seconds() if isinstance(verdict, Retry) else None
        what = " ".join(dict.fromkeys(part for part in (record.outcome, record.reason) if part))
        then = type(verdict).__name__.lower() if wait_s is None else f"again in {wait_s:g} s"
        lost = "" if answer is Recorded.RECORDED else ", but the job is another's by now"
        self.story.add(
            "recorded",
            f"recorded: {what}: {then}{lost}",
            process.name,
            (record.lane, record.key),
            outcome=record.outcome,
            reason=record.reason,
            verdict=verdict,
            wait_s=wait_s,
            answer=answer,
        )
        self._relay()

    def connection(self, process: Process) -> Any:
        return self._connections()

    def committed(self, process: Process, record: Record, connection: Any) -> None:
        self.story.add("committed", "the transaction commits: done", process.name, (record.lane, record.key))
        self._relay()

    def _relay(self) -> None:
        """Publish what completed jobs have promised, where its lane is here."""
        promised = self.ledger.outbox[self._relayed :]
        self._relayed = len(self.ledger.outbox)
        for job in promised:
            self._publish(job, "promised", "promised by another job")


def key_of(raw: RawMessage) -> str:
    """The key of a message, as far as it has one."""
    return str(raw.headers.get(KEY_HEADER) or raw.message_id or "")
