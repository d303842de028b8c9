"""The permits of one quota that this process holds. Pure: whoever asks brings the time, a monotonic one.

A permit is free, out with a call, or cooling: it comes back one period after the provider must have counted
the call. That is when the call was answered. Where its sending was told, it is ``bound_s`` after the sending
at the latest, however slow the answer. Where no answer came, the call may still be on its way for
``bound_s``.
"""

from __future__ import annotations

from collections import deque


class Sent:
    """A call of which we know by when the provider must have counted it."""

    __slots__ = ("by", "cooling")

    def __init__(self, by: float) -> None:
        self.by = by
        self.cooling = True


class Permits:
    """``held`` permits: ``free`` ones, and those that are out or cooling.

    Of ``held``, ``excess`` leave as soon as they are cool: another daemon waits for them.
    """

    __slots__ = ("_answered", "_late", "bound_s", "excess", "free", "held", "period_s", "used")

    def __init__(self, period_s: float, bound_s: float, held: int = 0) -> None:
        self.period_s = period_s
        self.bound_s = bound_s
        self.held = held
        self.free = held
        self.excess = 0
        self.used = False
        """Whether a call has been made with any of them."""
        # Times at which calls were counted at the latest. Each in its order, as the time only grows; due
        # times are not kept, so that a longer period also holds for what is cooling already.
        self._answered: deque[float] = deque()
        self._late: deque[Sent] = deque()

    @property
    def busy(self) -> int:
        """Permits that are out or cooling."""
        return self.held - self.free

    # --- one call -----------------------------------------------------------------------------------

    def take(self) -> None:
        """Take a free permit; whoever calls has looked that there is one."""
        self.free -= 1

    def take_early(self) -> float:
        """Take the one that is cool next, before it is: it may be used from the time that this gives."""
        answered, late = self._answered, self._late
        while late and not late[0].cooling:
            late.popleft()
        if answered and not (late and late[0].by < answered[0]):
            return answered.popleft() + self.period_s
        sent = late.popleft()
        sent.cooling = False
        return sent.by + self.period_s

    def unspent(self) -> None:
        """A permit comes back with which nothing was called: it is as cool as it was."""
        self._come_back(1)

    def answered(self, now: float) -> None:
        """The call has its answer: the provider has counted it."""
        self.used = True
        self._answered.append(now)

    def unanswered(self, now: float) -> None:
        """Nobody knows whether the call has arrived yet."""
        self.used = True
        self._late.append(Sent(now + self.bound_s))

    def sent(self, now: float) -> Sent:
        """The call goes out now. From here the permit cools by itself; an early answer only hastens it."""
        self.used = True
        sent = Sent(now + self.bound_s)
        self._late.append(sent)
        return sent

    def hasten(self, sent: Sent, now: float) -> None:
        """A call whose sending was told has its answer."""
        if sent.cooling and now < sent.by:
            sent.cooling = False
            self._answered.append(now)

    # --- time ---------------------------------------------------------------------------------------

    def cool(self, now: float) -> None:
        """Let come back what has cooled by ``now``."""
        counted_by = now - self.period_s
        back = 0
        answered, late = self._answered, self._late
        while answered and answered[0] <= counted_by:
            answered.popleft()
            back += 1
        while late and (not late[0].cooling or late[0].by <= counted_by):
            sent = late.popleft()
            back += sent.cooling
            sent.cooling = False
        if back:
            self._come_back(back)

    def next_s(self, now: float) -> float | None:
        """Seconds until the next one has cooled; None where none is cooling."""
        late = self._late
        while late and not late[0].cooling:
            late.popleft()
        if self._answered:
            counted = self._answered[0]
            if late and late[0].by < counted:
                counted = late[0].by
        elif late:
            counted = late[0].by
        else:
            return None
        return max(0.0, counted + self.period_s - now)

    # --- between daemons ----------------------------------------------------------------------------

    def keep(self, count: int) -> None:
        """Hold ``count`` at most: the others leave, the free ones now and the rest as they cool."""
        self.excess = max(0, self.held - count)
        self._leave(min(self.free, self.excess))

    def grow(self, count: int) -> None:
        """Cool permits arrive."""
        self.held += count
        self.free += count

    def _come_back(self, count: int) -> None:
        self.free += count
        if self.excess:
            self._leave(min(count, self.excess))

    def _leave(self, count: int) -> None:
        self.free -= count
        self.held -= count
        self.excess -= count
