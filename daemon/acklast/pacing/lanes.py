"""The door of a lane: a slot, then a permit, before the claim, so that a claim never waits in line."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from acklast.pacing.budgets import Budget
from acklast.pacing.slots import Slots


class Entry:
    """A start that was let in: a context manager that returns the slot, and the permit as it was used."""

    __slots__ = ("_budget", "_holds", "_slots", "_spent")

    def __init__(self, slots: Slots, budget: Budget | None) -> None:
        self._slots = slots
        self._budget = budget
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.give()
        if self._budget and self._holds:
            if self._spent:
                self._budget.spent()
            else:
                self._budget.unspent()


class LanePacing:
    """The slots and the budget of one lane."""

    def __init__(self, slots: Slots, budget: Budget | None = None) -> None:
        self.slots = slots
        self.budget = budget

    async def enter(self) -> Entry:
        """Wait for a slot and a permit.

        Raises:
            Draining: nothing more is to be started.
        """
        await self.slots.take()
        if self.budget:
            try:
                await self.budget.take()
            except BaseException:
                self.slots.give()
                raise
        return Entry(self.slots, self.budget)

    def close(self) -> None:
        """Start nothing more. A shared budget is closed by whoever owns it."""
        self.slots.close()
        if self.budget:
            self.budget.close()
