"""The budgets' book in memory, for fleets in virtual time: the same rules as the one in Postgres, and its
failures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from acklast.errors import LedgerUnavailable
from acklast.ledger.budgets import Account, Heard, Holding


@dataclass
class _Session:
    lease_until: float
    ended_at: float | None = None


@dataclass
class _Row:
    holding: Holding
    since: float | None = None


@dataclass
class Server:
    """What all daemons share. ``chance`` decides how long an answer takes, ``fails`` whether there is one."""

    chance: Callable[[], float]
    fails: Callable[[], str | None] = lambda: None
    sessions: list[_Session] = field(default_factory=list)
    rows: dict[str, dict[int, _Row]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    paused_until: dict[str, float] = field(default_factory=dict)
    ears: list[MemoryBook] = field(default_factory=list)
    statements: int = 0
    step_s: float = 0.0
    """How far the ledger's clock has been set."""

    def now(self) -> float:
        """What the ledger's clock says."""
        return asyncio.get_running_loop().time() + self.step_s

    def open_session(self, lease_s: float, former: int | None = None) -> int:
        if former is not None and self.sessions[former].ended_at is None:
            self.sessions[former].ended_at = self.now()
        self.sessions.append(_Session(self.now() + lease_s))
        return len(self.sessions) - 1

    def live(self, session: int) -> bool:
        known = self.sessions[session]
        return known.ended_at is None and known.lease_until > self.now()

    def held(self, budget: str) -> int:
        """The permits that anybody holds, by the book."""
        return sum(row.holding.held for row in self.rows.get(budget, {}).values())

    def tell(self, heard: Heard) -> None:
        for ear in self.ears:
            asyncio.get_running_loop().call_later(0.002 + 0.02 * self.chance(), ear.hear, heard)


class MemoryBook:
    """One daemon's book."""

    def __init__(self, server: Server, on_heard: Callable[[Heard], None]) -> None:
        self._server = server
        self._on_heard = on_heard
        server.ears.append(self)

    def hear(self, heard: Heard) -> None:
        if self in self._server.ears:
            self._on_heard(heard)

    async def close(self) -> None:
        self._server.ears.remove(self)

    async def listen(self) -> None:
        await self._travel()

    async def open(self, name: str, quota: int, period_s: float) -> None:
        await self._travel()
        self._server.rows.setdefault(name, {})
        self._server.versions.setdefault(name, 0)

    async def read(self, name: str, session: int) -> Account:
        await self._travel()
        server, now = self._server, self._server.now()
        rows = sorted(server.rows[name].items())
        account = Account(
            name,
            server.versions[name],
            max(0.0, server.paused_until.get(name, 0.0) - now),
            server.live(session),
            tuple(self._seen(who, row, now) for who, row in rows),
        )
        await self._travel()
        return account

    def _seen(self, session: int, row: _Row, now: float) -> Holding:
        known, live = self._server.sessions[session], self._server.live(session)
        over = known.lease_until if known.ended_at is None else known.ended_at
        return replace(
            row.holding,
            live=live,
            hot_left_s=0.0 if live else over + row.holding.hot_s - now,
            proved=known.ended_at is not None and known.ended_at < known.lease_until,
            waited_s=0.0 if row.since is None else now - row.since,
        )

    async def write(
        self, account: Account, mine: Holding, gone: Sequence[int], *, quota: int, period_s: float, tell: bool
    ) -> bool:
        failure = self._server.fails()
        await self._travel("lost" if failure == "lost" else None)
        server, name = self._server, account.name
        alive = server.live(mine.session) and not any(server.live(session) for session in gone)
        if server.versions[name] != account.version or not alive:
            return False
        server.versions[name] += 1
        rows = server.rows[name]
        for session in gone:
            rows.pop(session, None)
            known = server.sessions[session]
            known.ended_at = known.lease_until if known.ended_at is None else known.ended_at
        before = rows.get(mine.session)
        needy = mine.held == 0 and mine.needs > 0
        since = (before.since if before and before.since is not None else server.now()) if needy else None
        rows[mine.session] = _Row(mine, since)
        if tell:
            server.tell(Heard(name, session=mine.session))
        await self._travel(failure)
        return True

    async def pause(self, name: str, seconds: float, reason: str) -> None:
        await self._travel()
        until = self._server.now() + seconds
        if until > self._server.paused_until.get(name, 0.0):
            self._server.paused_until[name] = until
            self._server.tell(Heard(name, paused_s=seconds))

    async def _travel(self, failure: str | None = None) -> None:
        """To the server, or back."""
        self._server.statements += 1
        over = asyncio.Event()
        timer = asyncio.get_running_loop().call_later(0.0005 + 0.01 * self._server.chance(), over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()
        if failure is not None:
            raise LedgerUnavailable("no answer", "wait")
