"""Leave for one call: what a start holds of its budget, and how it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from acklast.pacing.permits import Permits, Sent

if TYPE_CHECKING:
    from acklast.pacing.budgets import Budget

TIMER_S: Final = 0.001
"""No timer is set for less: a loop that fires early by its clock's resolution would otherwise spin."""


class Permit:
    """Leave for one call. Exactly one of ``unspent``, ``answered`` and ``unanswered`` ends it."""

    __slots__ = ("_budget", "_calls", "_sent", "_starts", "_taken_at", "due")

    def __init__(
        self, budget: Budget, starts: Permits, calls: Permits | None, due: float | None, taken_at: float
    ) -> None:
        self._budget = budget
        self._starts = starts
        self._calls = calls
        self._sent: Sent | None = None
        self._taken_at = taken_at
        self.due = due
        """When it is cool, where it was taken before; None where it may be used at once."""

    async def cooled(self) -> None:
        """Wait until it may be used."""
        if self.due is None:
            return
        self._budget.claimed_after(self._budget.now() - self._taken_at)
        # A loop, because timers may be early by the clock's resolution and a call must not be.
        while (left_s := self.due - self._budget.now()) > 0:  # noqa: ASYNC110 - it is time that is waited for
            await asyncio.sleep(left_s + 1e-6)
        self.due = None

    def held_by(self, session: int) -> bool:
        """Whether a job that was claimed under ``session`` may start with it."""
        return self._starts is self._budget.starts and self._budget.session in (None, session)

    def unspent(self) -> None:
        """Nothing was called."""
        if self.due is not None and (left_s := self.due - self._budget.now()) > 0:
            asyncio.get_running_loop().call_later(left_s + TIMER_S, self.unspent)
            return
        self._starts.unspent()
        if self._calls is not None:
            self._calls.unspent()
        self._budget.pump()

    def sent(self) -> None:
        """The call goes out now: from here the permit cools, however slow the answer is."""
        if self._sent is None:
            self._sent = self._starts.sent(self._budget.now())

    def answered(self) -> None:
        """The call has its answer: the provider has counted it."""
        now = self._budget.now()
        if self._sent is None:
            self._starts.answered(now)
        else:
            self._starts.hasten(self._sent, now)
        if self._calls is not None:
            self._calls.answered(now)
        self._budget.pump()

    def unanswered(self) -> None:
        """Given up: the call may still be on its way."""
        now = self._budget.now()
        if self._sent is None:
            self._starts.unanswered(now)
        if self._calls is not None:
            self._calls.unanswered(now)
        self._budget.pump()
