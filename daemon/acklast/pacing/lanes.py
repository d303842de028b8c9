"""The door of a lane: a slot, then a permit, before the claim, so that a claim never waits in line."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import TracebackType
from typing import Self

from acklast.pacing.alone import Alone
from acklast.pacing.budgets import Budget, StandBy
from acklast.pacing.circuit import Circuit
from acklast.pacing.gate import Gate
from acklast.pacing.permit import Permit
from acklast.pacing.slots import Slots
from acklast.pacing.turn import NOBODYS, Turn, Turns


class Entry:
    """A start that was let in: a context manager that returns the slot, and the permit as it was used."""

    __slots__ = (
        "_answered",
        "_budget",
        "_circuit",
        "_gate",
        "_permit",
        "_probe",
        "_slots",
        "_spent",
        "_turn",
        "_up",
    )

    def __init__(
        self,
        gate: Gate,
        slots: Slots,
        budget: Budget | None = None,
        permit: Permit | None = None,
        circuit: Circuit | None = None,
        *,
        probe: bool = False,
        turn: Turn = NOBODYS,
    ) -> None:
        self._gate = gate
        self._slots = slots
        self._budget = budget
        self._permit = permit
        self._circuit = circuit
        self._probe = probe
        self._turn = turn
        self._up: bool | None = None
        self._spent = False
        self._answered = True

    def held_by(self, session: int) -> bool:
        """Whether its permit is still this session's: where it was lost meanwhile, nothing may be called."""
        return self._permit is None or self._permit.held_by(session)

    @property
    def paused(self) -> bool:
        """Whether the downstream asked for quiet meanwhile, or an operator paused the lane."""
        return self._gate.paused or (self._budget is not None and self._budget.paused)

    @property
    def early(self) -> bool:
        """Whether it was let in a moment before its permit is cool: ``cooled`` must be awaited."""
        return self._permit is not None and self._permit.due is not None

    async def cooled(self) -> None:
        """Wait until the permit may be used."""
        if self._permit is not None:
            await self._permit.cooled()

    def spend(self) -> None:
        """The downstream is about to be called: the permit comes back only a period after the answer."""
        self._spent = True
        self._slots.started += 1

    def sent(self) -> None:
        """The request goes out now. Who can tell lets the permit cool while a slow answer is waited for."""
        if self._permit is not None and self._spent:
            self._permit.sent()

    def unanswered(self) -> None:
        """No answer came: the call may still be on its way to the provider's meter."""
        self._answered = False

    async def again(self) -> None:
        """Wait for another permit: a second call under the same slot is a second call at the meter.

        Raises:
            Draining: nothing more is to be started.
        """
        if self._budget is not None and self._spent:
            self._give_back(self._answered)
            self._permit = await self._budget.take(self._turn)
            self._spent, self._answered = False, True
            await self._permit.cooled()

    def pause(self, seconds: float) -> None:
        """The downstream asked for quiet: pause its budget, for every daemon."""
        if self._budget is not None:
            self._budget.ask_for_quiet(seconds)

    def slow(self, rate_per_s: float, seconds: float) -> None:
        """The downstream hints at a rate below the quota, for so many seconds."""
        if self._budget is not None:
            self._budget.slow(rate_per_s, seconds)

    def saw(self, up: bool | None) -> None:
        """The downstream was up, or down, as far as this start could see; None: it could not tell."""
        self._up = up

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.give()
        if self._circuit is not None:
            pause_s = self._circuit.leave(probe=self._probe, up=self._up)
            if pause_s and self._budget is not None:
                # Here alone: what this daemon cannot reach, others may. Then one goes to see, not a ramp.
                self._budget.pause(pause_s, ramps=False)
        if self._permit is not None:
            self._give_back(self._answered and kind is None)

    def _give_back(self, answered: bool) -> None:
        permit, self._permit = self._permit, None
        if permit is None:
            return
        if not self._spent:
            permit.unspent()
        elif answered:
            permit.answered()
        else:
            permit.unanswered()


class LanePacing:
    """The slots and the budget of one lane, and the breaker of that budget."""

    def __init__(
        self,
        slots: Slots,
        budget: Budget | None = None,
        circuit: Circuit | None = None,
        gate: Gate | None = None,
        alone: Alone | None = None,
        turn: Turn = NOBODYS,
    ) -> None:
        """``gate``: the one of this lane, where its budget may have to stand by.

        ``turn``: what its starts are charged to, where a delivery does not say.

        ``alone``: the one place of this process for jobs that may be what ends it.
        """
        self._waiting: set[asyncio.Future[Permit]] = set()
        self.slots = slots
        self.budget = budget
        self.circuit = circuit
        self.gate = gate or Gate()
        self.alone = alone or Alone()
        self._turn = turn
        self.turns: Turns | None = None
        """What tells the turns of a lane that is fair."""

    def weigh(self, weight: float) -> None:
        """From now on the lane gets so many starts beside one of a lane of weight 1."""
        self._turn = replace(self._turn, lane_weight=weight)
        if self.turns is not None:
            self.turns.lane_weight = weight

    async def enter(self, turn: Turn | None = None) -> Entry:
        """Wait for a slot and a permit, which is charged to ``turn``.

        Raises:
            StandBy: nothing starts here for a while.
            Draining: nothing more is to be started.
        """
        if self.gate.paused or (self.budget is not None and self.budget.stands_by):
            # Before the slot: one that comes free only when a long handler ends is not worth waiting for.
            raise StandBy
        await self.slots.take()
        if self.budget is None and self.circuit is None and not self.gate.paused:
            return Entry(self.gate, self.slots)
        try:
            return await self._admitted(turn or self._turn)
        except BaseException:
            self.slots.give()
            raise

    async def _admitted(self, turn: Turn) -> Entry:
        """Wait for a permit, at a time when the breaker lets calls through."""
        gate, slots, budget, circuit = self.gate, self.slots, self.budget, self.circuit
        while True:
            permit = None
            if budget is not None:
                permit = budget.try_take() or await budget.take(turn, self._waiting)
            if gate.paused:
                if permit is not None:
                    permit.unspent()
                raise StandBy
            if circuit is None:
                return Entry(gate, slots, budget, permit, turn=turn)
            if circuit.admits():
                return Entry(gate, slots, budget, permit, circuit, probe=circuit.start(), turn=turn)
            if permit is not None:
                permit.unspent()
            await circuit.moved()

    def pause(self, paused: bool) -> None:
        """An operator pauses the lane, or lets it go on: nothing starts meanwhile, and nothing waits here."""
        self.gate.pause(paused)
        if paused and self._waiting and self.budget is not None:
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_exception(StandBy())
            self.budget.pump()

    def saw_backlog(self, queue: str, jobs: int, served: bool) -> None:
        """So many jobs wait in a queue of the lane. While it is paused they need no permits."""
        if self.budget is not None:
            self.budget.saw_backlog(queue, 0 if self.gate.paused else jobs, served)

    def close(self) -> None:
        """Start nothing more. A shared budget is closed by whoever owns it."""
        self.slots.close()
        self.alone.close()
        if self.budget:
            self.budget.close()
        if self.circuit:
            self.circuit.close()
