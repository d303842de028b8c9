"""The door of a lane: a slot, then a permit, before the claim, so that a claim never waits in line."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from acklast.pacing.budgets import Budget
from acklast.pacing.circuit import Circuit
from acklast.pacing.slots import Slots


class Entry:
    """A start that was let in: a context manager that returns the slot, and the permit as it was used."""

    __slots__ = ("_budget", "_circuit", "_holds", "_probe", "_slots", "_spent", "_up")

    def __init__(
        self, slots: Slots, budget: Budget | None, circuit: Circuit | None = None, *, probe: bool = False
    ) -> None:
        self._slots = slots
        self._budget = budget
        self._circuit = circuit
        self._probe = probe
        self._up: bool | None = None
        self._holds = True
        self._spent = False

    def spend(self) -> None:
        """The downstream is about to be called: the permit comes back only a period after the answer."""
        self._spent = True

    async def again(self) -> None:
        """Wait for another permit: a second call under the same slot is a second call at the meter.

        Raises:
            Draining: nothing more is to be started.
        """
        if self._budget and self._spent:
            self._budget.spent()
            self._holds = False
            await self._budget.take()
            self._holds, self._spent = True, False

    def pause(self, seconds: float) -> None:
        """The downstream asked for quiet: pause its budget."""
        if self._budget:
            self._budget.pause(seconds)

    def saw(self, up: bool | None) -> None:
        """The downstream was up, or down, as far as this start could see; None: it could not tell."""
        self._up = up

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.give()
        if self._circuit and (pause_s := self._circuit.leave(probe=self._probe, up=self._up)):
            self.pause(pause_s)
        if self._budget and self._holds:
            if self._spent:
                self._budget.spent()
            else:
                self._budget.unspent()


class LanePacing:
    """The slots and the budget of one lane, and the breaker of that budget."""

    def __init__(self, slots: Slots, budget: Budget | None = None, circuit: Circuit | None = None) -> None:
        self.slots = slots
        self.budget = budget
        self.circuit = circuit

    async def enter(self) -> Entry:
        """Wait for a slot and a permit.

        Raises:
            Draining: nothing more is to be started.
        """
        await self.slots.take()
        if self.budget is None and self.circuit is None:
            return Entry(self.slots, None)
        try:
            probe = await self._permit()
        except BaseException:
            self.slots.give()
            raise
        return Entry(self.slots, self.budget, self.circuit, probe=probe)

    async def _permit(self) -> bool:
        """Wait for a permit at a time when calls are let through; true where this one is the probe."""
        while True:
            if self.budget:
                await self.budget.take()
            if self.circuit is None:
                return False
            if self.circuit.admits():
                return self.circuit.start()
            if self.budget:
                self.budget.unspent()
            await self.circuit.moved()

    def close(self) -> None:
        """Start nothing more. A shared budget is closed by whoever owns it."""
        self.slots.close()
        if self.budget:
            self.budget.close()
        if self.circuit:
            self.circuit.close()
