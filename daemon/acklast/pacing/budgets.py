"""Budgets: what may start, by the permits that this process holds of a downstream's quota.

A budget of 100 per 60 s has 100 permits in the whole fleet. A start takes one, and it comes back 60 s after
the provider must have counted the call, on our monotonic clock. So no window of 60 s at its meter can hold
more than 100 calls, whatever the jitter. What one process holds of them is the fleet's affair (``fleet``,
``exchange``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from acklast.config.quota import Quota
from acklast.pacing.gate import OPEN_AHEAD_S, Gate, serves
from acklast.pacing.pace import Pace
from acklast.pacing.permit import TIMER_S, Permit
from acklast.pacing.permits import Permits
from acklast.pacing.slots import Draining
from acklast.pacing.smooth import Smooth
from acklast.pacing.turn import NOBODYS, Turn, Waiters

_AHEAD_S = 0.01
_AHEAD_MIN_S = 0.002
_AHEAD_MAX_S = 0.05


class StandBy(Draining):
    """Nothing starts here for a while: the delivery goes back to the broker, for whoever can start it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a budget has beside its quota."""

    arrival_bound_s: float = 0.25
    """A call is counted by the provider at most so long after it was sent."""
    concurrency: int | None = None
    """Calls in flight."""
    burst: int | None = None
    """Starts at once; None where all that the permits allow may start together."""


NO_LIMITS = Limits()


class Budget:
    """The permits of one downstream quota that this process may use."""

    def __init__(
        self,
        name: str,
        quota: Quota,
        limits: Limits = NO_LIMITS,
        *,
        clock: Callable[[], float] | None = None,
        shared: bool = False,
    ) -> None:
        """``shared``: starts with no permit, for the fleet hands them out; else it has them all."""
        self.name = name
        self.quota = quota
        self.limits = limits
        self._clock = clock
        self._waiters = Waiters()
        self._timer: asyncio.TimerHandle | None = None
        self._gates: list[Gate] = []
        self._shut: type[Draining] | None = None
        self._hungry = False
        self._held_seen = 0
        self._pace = Pace(quota.period_s)
        self._smooth = Smooth(limits.burst, self.pump) if limits.burst else None
        self._ahead_max_s = min(_AHEAD_MAX_S, quota.period_s / 20)
        self._ahead_s = min(_AHEAD_S, self._ahead_max_s)
        """How long before it is cool a permit lets a job in: its claim then costs no time at the meter."""
        self._claim_s = self._ahead_s
        self._plain = self._smooth is None and limits.concurrency is None
        self.session: int | None = None
        """The worker session to which the permits belong; None where they are this process's own."""
        self._backlogs: dict[str, tuple[int, bool]] = {}
        self.share = 1.0
        """What part this daemon holds of all permits that are held."""
        self.more = False
        """Whether permits can be had that nobody holds: worth waiting for with a delivery in hand."""
        self.on_need: Callable[[bool], None] | None = None
        """Told when permits are short (False), and when some have left (True)."""
        self.on_quiet: Callable[[float], None] | None = None
        """Told the seconds for which the downstream asked for quiet."""
        self.reset(shared=shared)

    def reset(self, *, shared: bool = True) -> None:
        """Begin anew: the permits of an ended session are void."""
        quota, limits = self.quota, self.limits
        self.starts = Permits(quota.period_s, limits.arrival_bound_s, 0 if shared else quota.count)
        self.calls: Permits | None = None
        if limits.concurrency is not None:
            self.calls = Permits(0.0, limits.arrival_bound_s, 0 if shared else limits.concurrency)

    def now(self) -> float:
        return self._clock() if self._clock else asyncio.get_running_loop().time()

    # --- looking ------------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """Permits that could be taken now, were the budget not paused."""
        self.starts.cool(self.now())
        return self.starts.free

    @property
    def paused_s(self) -> float:
        """Seconds until the pause ends; 0 where it is not paused."""
        return max(0.0, self._pace.paused_until - self.now())

    @property
    def waiting(self) -> int:
        """How many wait for a permit."""
        return len(self._waiters)

    @property
    def paused(self) -> bool:
        """Whether nothing may start now."""
        return not self._pace.idle and self._pace.paused_until > self.now()

    @property
    def stands_by(self) -> bool:
        """Whether nothing starts here for a while."""
        return self._shut is StandBy

    @property
    def rate_per_s(self) -> float:
        """This daemon's part of the quota's rate."""
        return self.quota.count / self.starts.period_s * self.share

    def backlog(self, *, unserved: bool) -> int:
        """Jobs that wait in our lanes' queues while we take nothing in; or those alone that nobody does."""
        return sum(jobs for jobs, served in self._backlogs.values() if not (unserved and served))

    def saw_backlog(self, queue: str, jobs: int, served: bool) -> None:
        """So many jobs wait in a queue of a lane; ``served``: other daemons consume it."""
        before, self._backlogs[queue] = self.backlog(unserved=False), (jobs, served)
        if jobs and not before and not self.starts.held and self.on_need is not None:
            self.on_need(False)

    # --- taking -------------------------------------------------------------------------------------

    async def take(self, turn: Turn = NOBODYS, line: set[asyncio.Future[Permit]] | None = None) -> Permit:
        """Wait for a permit, which is charged to ``turn``. ``line`` has whoever waits, for the lane that may
        send them home.

        Raises:
            StandBy: nothing starts here for a while.
            Draining: the budget is closed.
        """
        permit = self.try_take()
        if permit is not None:
            return permit
        if self._shut:
            raise self._shut
        waiter: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self._waiters.join(waiter, turn)
        if line is not None:
            line.add(waiter)
        self.pump()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().unspent()
            raise
        finally:
            if line is not None:
                line.discard(waiter)

    def try_take(self) -> Permit | None:
        """A permit, where one can be had without waiting and without passing anybody who waits."""
        if self._waiters or self._shut:
            return None
        starts = self.starts
        if self._plain and self._pace.idle:
            if not starts.free:
                now = self.now()
                starts.cool(now)
                if not (starts.free or self._cools_soon(now)):
                    return None
            return self._permit()
        now = self.now()
        starts.cool(now)
        return self._permit() if self._may_start(now) else None

    def _permit(self) -> Permit:
        starts, due, taken_at = self.starts, None, 0.0
        if starts.free:
            starts.free -= 1
        else:
            due, taken_at = starts.take_early(), self.now()
        if self.calls is not None:
            self.calls.free -= 1
        if not self._pace.idle:
            self._pace.started(self.now())
        return Permit(self, starts, self.calls, due, taken_at)

    def claimed_after(self, seconds: float) -> None:
        """So long after it was let in a job was ready to start: let the next ones in as early."""
        self._claim_s += (seconds - self._claim_s) / 16
        self._ahead_s = min(self._ahead_max_s, max(_AHEAD_MIN_S, 1.25 * self._claim_s + TIMER_S))

    def _cools_soon(self, now: float) -> bool:
        if self.starts.excess:
            return False
        cooled_s = self.starts.next_s(now)
        return cooled_s is not None and cooled_s <= self._ahead_s

    def _may_start(self, now: float) -> bool:
        return (
            (self.starts.free > 0 or self._cools_soon(now))
            and (self.calls is None or self.calls.free > 0)
            and (self._pace.idle or self._pace.wait_s(now, self.rate_per_s) <= 0)
            # The last question: its answer uses up leave.
            and (self._smooth is None or self._smooth.take())
        )

    # --- what others say ----------------------------------------------------------------------------

    def pause(self, seconds: float, *, ramps: bool = True) -> None:
        """Start nothing for ``seconds`` from now; a shorter pause never shortens a longer one.

        ``ramps``: the first starts after it come slowly, so that nobody storms who was just told to wait.
        """
        if self._pace.pause(self.now(), seconds, ramps=ramps):
            self.pump()

    def ask_for_quiet(self, seconds: float) -> None:
        """Pause here, and have the whole fleet told."""
        self.pause(seconds)
        if self.on_quiet:
            self.on_quiet(seconds)

    def slow(self, rate_per_s: float, seconds: float) -> None:
        """Start at most ``rate_per_s`` in the whole fleet for the next ``seconds``; the latest hint counts.

        A hint never raises the rate above the quota. This process takes its part of the rate, by the permits
        that it holds of those that are held.
        """
        if rate_per_s * self.starts.period_s >= self.quota.count:
            rate_per_s = seconds = 0.0  # no slower than the quota itself: an earlier hint is over
        if seconds > 0 or not self._pace.idle:
            self._pace.slow(self.now(), rate_per_s * self.share, seconds)
            self.pump()

    def set_quota(self, quota: Quota) -> None:
        """What of the configured quota is in force; the permits follow by the exchange."""
        self.quota = quota
        self.pump()

    def effective_per_s(self) -> float:
        """What this process may start in a second as things are now: its part of the quota, less what holds
        back.
        """
        return self._pace.rate(self.now(), self.rate_per_s) if self.starts.held else 0.0

    @property
    def opens_s(self) -> float:
        """Seconds until something could start here."""
        return self._start_s(self.now())

    # --- the gates ----------------------------------------------------------------------------------

    def gate(self) -> Gate:
        """A gate that is shut while nothing starts here for long; without one, whoever waits waits."""
        gate = Gate(is_open=False)
        self._gates.append(gate)
        if self._shut is None:
            self._shut = StandBy
        self.pump()
        return gate

    def close(self) -> None:
        """Send everybody home, now and from now on."""
        self._send_home(Draining)
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._smooth:
            self._smooth.close()

    def _send_home(self, reason: type[Draining]) -> None:
        self._shut = reason
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(reason())

    def _move_gates(self, now: float) -> None:
        if not self._gates or self._shut is Draining:
            return
        open_now = self._shut is None
        if open_now and self.starts.free and self._pace.idle:
            return
        wait_s = 0.0 if self.more and open_now else self._start_s(now)
        if serves(open_now, self.starts.held - self.starts.excess, wait_s) == open_now:
            return
        if open_now:
            self._send_home(StandBy)
        else:
            self._shut = None
        for gate in self._gates:
            gate.move(not open_now)

    def _start_s(self, now: float) -> float:
        """Seconds until something could start here."""
        paused_s = max(0.0, self._pace.paused_until - now)
        if self.starts.free > 0:
            return paused_s
        cooled_s = self.starts.next_s(now)
        # With every permit out, the next one is a whole period away.
        return max(paused_s, self.starts.period_s if cooled_s is None else cooled_s)

    # --- the pump -----------------------------------------------------------------------------------

    def pump(self) -> None:
        """Let in whom the permits allow, and come back when the next one is due."""
        if self._shut is Draining:
            return
        now = self.now()
        self.starts.cool(now)
        if self.calls is not None:
            self.calls.cool(now)
        if self._smooth:
            self._smooth.set_rate(self.rate_per_s)
        self._let_in(now)
        if self._gates:
            self._move_gates(now)
        self._arm(now)
        if self.on_need is not None:
            self._tell_needs()

    def _let_in(self, now: float) -> None:
        waiters = self._waiters
        while waiters:
            if waiters.first().done():
                waiters.drop()
            elif self._may_start(now):
                waiters.popleft().set_result(self._permit())
            else:
                return

    def _arm(self, now: float) -> None:
        """Set the timer for the next thing that happens by itself. One that fires too early does no harm."""
        next_s = self._next_s(now)
        if next_s is None:
            return
        at = now + max(next_s, TIMER_S)
        loop = asyncio.get_running_loop()
        if self._timer:
            if self._timer.when() <= loop.time() + (at - now):
                return
            self._timer.cancel()
        self._timer = loop.call_later(at - now, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.pump()

    def _next_s(self, now: float) -> float | None:
        starts, calls = self.starts, self.calls
        wanted = bool(self._waiters)
        cooled_s = starts.next_s(now) if (wanted and not starts.free) or starts.excess else None
        if cooled_s is not None and not starts.excess:
            cooled_s -= self._ahead_s
        if cooled_s is None and calls is not None and wanted and not calls.free:
            cooled_s = calls.next_s(now)
        if wanted and starts.free and (paced_s := self._pace.wait_s(now, self.rate_per_s)) > 0:
            return paced_s if cooled_s is None else min(paced_s, cooled_s)
        if self._gates and self._shut is StandBy and starts.held:
            opens_s = self._start_s(now) - OPEN_AHEAD_S
            return opens_s if cooled_s is None else min(opens_s, cooled_s)
        return cooled_s

    def _tell_needs(self) -> None:
        held = self.starts.held + (self.calls.held if self.calls is not None else 0)
        hungry = bool(self._waiters) and not (self.starts.free and (self.calls is None or self.calls.free))
        left, new = held < self._held_seen, hungry and not self._hungry
        self._held_seen, self._hungry = held, hungry
        if (left or new) and self.on_need is not None:
            self.on_need(left)
