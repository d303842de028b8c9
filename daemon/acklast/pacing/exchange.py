"""Keeps this daemon's permits in step with the fleet: a look at the ledger when needed, and every beat.

What is held here is never more than what the ledger says: permits leave here before they are given back
there, and are used here only after they were written there. A lost answer so costs permits for a moment,
never a window.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from acklast.apart import apart
from acklast.config.quota import Quota
from acklast.errors import LedgerUnavailable
from acklast.ledger.api import Session
from acklast.ledger.budgets import Account, Book, Heard, Holding
from acklast.ledger.lease import Lease
from acklast.pacing.budgets import Budget
from acklast.pacing.departed import Departed
from acklast.pacing.permits import Permits
from acklast.pacing.plan import Mine, Plan, plan
from acklast.telemetry.events import Emitter
from acklast.unquoted import unquoted

BEAT_S: Final = 5.0
"""How often to look where nothing asks for it."""
_LEFT_S: Final = 0.02
"""How soon permits that have cooled for others are given back: a few at a time, not each by itself."""
_GAP_MIN_S: Final = 0.05
_TENURE_S: Final = 5.0
"""How long a daemon's first permits are its own though it has not used one."""
_CLOSE_S: Final = 2.0
_AGREE_S: Final = 5.0
"""How long the daemons may take to follow a change of what is in force."""


@dataclass(slots=True)
class _Pool:
    """The permits of one budget for one thing: its starts, or its calls in flight."""

    name: str
    quota: int
    period_s: float
    bound_s: float
    permits: Callable[[], Permits]
    departed: Departed
    granted_at: float = 0.0
    warned: tuple[int, float] | None = None
    changes_until: float = 0.0


@dataclass(slots=True)
class _State:
    """What is known of one budget."""

    budget: Budget
    pools: list[_Pool]
    gap_s: float
    """The shortest time between two looks that hunger asks for."""
    backoff_s: float
    next_at: float = 0.0
    last_at: float = -1e9
    session: int | None = None
    opened: bool = False
    failing: bool = False


def _state(budget: Budget) -> _State:
    quota, bound_s = budget.quota, budget.limits.arrival_bound_s
    pools = [_Pool(budget.name, quota.count, quota.period_s, bound_s, lambda: budget.starts, Departed())]
    if budget.limits.concurrency is not None:

        def calls() -> Permits:
            assert budget.calls is not None
            return budget.calls

        name = f"{budget.name}#calls"
        pools.append(_Pool(name, budget.limits.concurrency, 0.0, bound_s, calls, Departed()))
    gap_s = min(1.0, max(_GAP_MIN_S, quota.period_s / 10))
    return _State(budget, pools, gap_s, gap_s)


@dataclass(slots=True)
class _Looked:
    """What a look at one pool came to."""

    moved: bool = False
    clashed: bool = False
    lacks: bool = False
    returns_s: float | None = None


class Exchange:
    """The budgets of one daemon, and the task that keeps them."""

    def __init__(
        self,
        budgets: Iterable[Budget],
        lease: Lease,
        emitter: Emitter,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._lease = lease
        self._emitter = emitter
        self._chance = chance
        self._states = {budget.name: _state(budget) for budget in budgets}
        self._book: Book | None = None
        self._wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self._pauses: dict[str, float] = {}
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._states)

    # --- from start to end --------------------------------------------------------------------------

    async def start(self, book: Book) -> None:
        """Take what there is for us, and go on looking until ``close``."""
        if not self._states:
            return
        self._book = book
        for name, state in self._states.items():
            state.budget.on_need = partial(self._needed, state)
            state.budget.on_quiet = partial(self._asked_for_quiet, name)
        self._lease.on_open = self.look_again
        await self._round()
        self.task = asyncio.create_task(self._keep(), name="exchange")

    async def close(self) -> None:
        """Give back what is cool, as far as the ledger can be reached."""
        tasks = [*self._telling, *([self.task] if self.task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._book is None:
            return
        with suppress(LedgerUnavailable, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                for state in self._states.values():
                    await self._give_back(self._book, state)
        await self._book.close()

    async def _give_back(self, book: Book, state: _State) -> None:
        if state.session is None:
            return
        for pool in state.pools:
            permits = pool.permits()
            permits.cool(self._now())
            permits.keep(permits.busy)
            account = await book.read(pool.name, state.session)
            mine = self._holding(pool, state.session, permits.held, 0, pool.period_s)
            await book.write(account, mine, (), quota=pool.quota, period_s=pool.period_s, tell=True)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    # --- what wakes it ------------------------------------------------------------------------------

    def heard(self, heard: Heard) -> None:
        """Another daemon says something."""
        state = self._states.get(heard.budget.partition("#")[0])
        if state is None:
            return
        if heard.paused_s is not None:
            self._pauses[state.budget.name] = self._now() + heard.paused_s
            state.budget.pause(heard.paused_s)
        elif heard.session != state.session:
            state.backoff_s = state.gap_s
            self._look(state, self._now() + _LEFT_S * self._chance())

    def look_again(self) -> None:
        """Something may have been missed: a session has begun, or the connection was lost."""
        for state in self._states.values():
            self._look(state, self._now())

    def _needed(self, state: _State, left: bool) -> None:
        gap_s = _LEFT_S if left else _GAP_MIN_S if state.budget.more else state.backoff_s
        self._look(state, max(self._now(), state.last_at + gap_s))

    def _look(self, state: _State, at: float) -> None:
        if at < state.next_at:
            state.next_at = at
            self._wake.set()

    def limit(self, name: str, quota: Quota, calls: int | None) -> None:
        """From now on this much of a budget's configured quota and of its calls in flight is in force."""
        state = self._states[name]
        starts, in_force = state.pools[0], [(quota.count, quota.period_s)]
        if calls is not None:
            in_force.append((calls, 0.0))
        if in_force == [(pool.quota, pool.period_s) for pool in state.pools]:
            return
        for pool, (count, period_s) in zip(state.pools, in_force, strict=True):
            pool.quota, pool.period_s, pool.changes_until = count, period_s, self._now() + _AGREE_S
        if starts.quota != state.budget.quota.count or starts.period_s != state.budget.quota.period_s:
            state.budget.set_quota(quota)
        state.backoff_s = state.gap_s
        self._look(state, self._now())

    # --- the rounds ---------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            next_s = min(state.next_at for state in self._states.values()) - self._now()
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, next_s)):
                    await self._wake.wait()
            await self._round()

    async def _round(self) -> None:
        """Look at each budget whose time has come."""
        session = await self._lease.current()
        for state in self._states.values():
            if state.next_at > (now := self._now()):
                continue
            state.last_at, state.next_at = now, now + BEAT_S
            try:
                looked = await self._look_at(state, session)
            except Exception as error:
                if not state.failing:  # not only an outage: a defect must not keep every lane waiting
                    state.failing, told = True, {"budget": state.budget.name, "error": unquoted(error)}
                    self._emitter.notice("budget.exchange_failed", "warning", **told)
                self._look(state, self._now() + 1.0)
            else:
                state.failing = False
                self._plan_next(state, looked)

    def _plan_next(self, state: _State, looked: list[_Looked]) -> None:
        now = self._now()
        if any(one.clashed for one in looked):
            self._look(state, now + _LEFT_S * self._chance())
        if any(one.moved for one in looked):
            state.backoff_s = state.gap_s
        elif state.backoff_s < BEAT_S:
            state.backoff_s = min(BEAT_S, state.backoff_s * 2)
        if any(one.lacks for one in looked):
            self._look(state, now + state.backoff_s)
            for one in looked:
                if one.returns_s is not None:
                    self._look(state, now + one.returns_s + 0.001)

    async def _look_at(self, state: _State, session: Session) -> list[_Looked]:
        assert self._book is not None
        if not state.opened:
            for pool in state.pools:
                await self._book.open(pool.name, pool.quota, pool.period_s)
            state.opened = True
        accounts = [await self._book.read(pool.name, session.id) for pool in state.pools]
        if not accounts[0].live:
            self._lease.lost(session)
            return []
        self._adopt(state, session, accounts)
        looked = []
        for pool, account in zip(state.pools, accounts, strict=True):
            looked.append(await self._exchange(state, pool, account, session.id))
        if not any(one.clashed for one in looked):
            state.session = state.budget.session = session.id
        state.budget.pump()
        return looked

    def _adopt(self, state: _State, session: Session, accounts: list[Account]) -> None:
        """The permits of our own former session are ours while the ledger still keeps them; else they are
        void.
        """
        if state.session in (None, session.id):
            return
        ours = {state.session, session.id}
        if not all(any(holding.session in ours for holding in account.holdings) for account in accounts):
            state.budget.reset()
            state.session = None

    # --- one pool -----------------------------------------------------------------------------------

    async def _exchange(self, state: _State, pool: _Pool, account: Account, session: int) -> _Looked:
        budget, permits = state.budget, pool.permits()
        if account.paused_s > budget.paused_s:
            budget.pause(account.paused_s)
        permits.cool(self._now())
        account = pool.departed.cooled(account, self._now())
        planned = plan(account, self._mine(state, pool, session))
        self._agree(pool, permits, planned)
        if permits is budget.starts:
            budget.share = planned.share or 1 / (1 + len(account.holdings))
        if planned.keep < permits.held or permits.excess:
            permits.keep(planned.keep)
        mine = self._holding(pool, session, permits.held + planned.take, planned.needs, planned.period_s)
        old = planned.recorded
        if old is not None and mine.says_as(old) and not planned.gone:
            self._expect(state, pool, planned.more)
            return _Looked(lacks=planned.lacks, returns_s=planned.returns_s)
        assert self._book is not None
        released = old is not None and mine.held < old.held
        changed = old is not None and (mine.quota, mine.period_s) != (old.quota, old.period_s)
        written = await self._book.write(
            account,
            mine,
            planned.gone,
            quota=planned.quota,
            period_s=planned.period_s,
            tell=planned.short or released or changed,
        )
        self._expect(state, pool, written and planned.more)
        if written and planned.take:
            self._grow(pool, permits, planned.take)
        return _Looked(
            moved=written and (planned.take > 0 or released),
            clashed=not written,
            lacks=planned.lacks,
            returns_s=planned.returns_s,
        )

    @staticmethod
    def _expect(state: _State, pool: _Pool, more: bool) -> None:
        """Whether a delivery that is short of a permit is worth holding: starts alone decide."""
        if pool is state.pools[0]:
            state.budget.more = more

    def _grow(self, pool: _Pool, permits: Permits, count: int) -> None:
        if permits.held == 0:
            pool.granted_at, permits.used = self._now(), False
        permits.grow(count)

    def _mine(self, state: _State, pool: _Pool, session: int) -> Mine:
        permits = pool.permits()
        return Mine(
            session,
            state.session,
            permits.held,
            permits.busy,
            state.budget.waiting,
            state.budget.backlog(unserved=False),
            state.budget.backlog(unserved=True),
            self._fresh(pool),
            pool.quota,
            pool.period_s,
        )

    def _holding(self, pool: _Pool, session: int, held: int, needs: int, period_s: float) -> Holding:
        return Holding(
            session,
            held,
            needs,
            fresh=held > 0 and (pool.permits().held == 0 or self._fresh(pool)),
            quota=pool.quota,
            period_s=pool.period_s,
            hot_s=period_s + pool.bound_s,
        )

    def _fresh(self, pool: _Pool) -> bool:
        permits = pool.permits()
        return permits.held > 0 and not permits.used and self._now() < pool.granted_at + _TENURE_S

    def _agree(self, pool: _Pool, permits: Permits, planned: Plan) -> None:
        """All go by the strictest quota that any of them is configured with."""
        permits.period_s = planned.period_s
        agreed = (planned.quota, planned.period_s)
        if self._now() < pool.changes_until:
            return
        if agreed != (pool.quota, pool.period_s) and agreed != pool.warned:
            self._emitter.notice(
                "budget.disagrees",
                "warning",
                budget=pool.name,
                configured=f"{pool.quota} per {pool.period_s:g} s",
                effective=f"{planned.quota} per {planned.period_s:g} s",
            )
        pool.warned = agreed

    # --- pauses -------------------------------------------------------------------------------------

    def _asked_for_quiet(self, name: str, seconds: float) -> None:
        """A downstream asked for quiet: tell the fleet, once for all the calls that were told the same."""
        until = self._now() + seconds
        if until <= self._pauses.get(name, 0.0) + 0.05:
            return
        self._pauses[name] = until
        self._telling.add(task := apart(self._tell_pause(name, until), name="pause"))
        task.add_done_callback(self._telling.discard)

    async def _tell_pause(self, name: str, until: float) -> None:
        self._emitter.notice("budget.paused", "warning", budget=name, seconds=round(until - self._now(), 3))
        while (left_s := until - self._now()) > 0 and self._pauses[name] <= until:
            try:
                assert self._book is not None
                await self._book.pause(name, left_s, "rate_limited")
            except LedgerUnavailable:
                await asyncio.sleep(min(0.2, left_s))
            else:
                return
