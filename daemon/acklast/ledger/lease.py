"""The worker session of this process: opened, renewed, lost, opened again.

A claim is live while its session's lease is. The lease is counted on the database's clock there and on the
monotonic clock here, from before the renewal was sent, so that this side always ends first: a daemon that
could not renew in time starts nothing more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from acklast.errors import LedgerUnavailable, SessionLost
from acklast.ledger.api import Ledger, Session
from acklast.ledger.watch import LedgerWatch
from acklast.progress import Part, Round
from acklast.telemetry.events import Emitter
from acklast.unquoted import unquoted

_RETRY_S = 0.5
"""How soon a renewal is tried again when the ledger does not answer."""
_CLOSE_S: Final = 2.0
"""How long the ledger may take to hear that a session has ended: it ends by itself too."""
_STILL_S: Final = 90.0
"""How long a beat may take, beside the pause before it: its connections and statements have time limits."""


class Lease:
    """Holds the session. ``current()`` is what every claim asks first."""

    def __init__(
        self,
        ledger: Ledger,
        emitter: Emitter,
        *,
        instance: str,
        worker: str,
        version: str,
        lease_s: float,
        clock: Callable[[], float] = time.monotonic,
        watch: LedgerWatch | None = None,
    ) -> None:
        self._watch = watch or LedgerWatch(emitter, clock=clock)
        self._failing = False
        self._ledger = ledger
        self._emitter = emitter
        self._instance = instance
        self._worker = worker
        self._version = version
        self._lease_s = lease_s
        self._clock = clock
        self._session: Session | None = None
        self.sessions: list[int] = []
        """Every session that it has had: what is asked of one is asked of this process."""
        self._ends = 0.0
        self._live = asyncio.Event()
        self._due = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._round = Round()
        self.on_open: Callable[[], None] | None = None
        """Told of each new session."""

    @property
    def live(self) -> bool:
        """Whether this process may start a job now."""
        return self._session is not None and self._clock() < self._ends

    @property
    def left_s(self) -> float:
        """Seconds until the lease runs out; 0 without a live session."""
        return max(0.0, self._ends - self._clock()) if self._session is not None else 0.0

    def holds(self, session: Session) -> bool:
        """Whether a job that was claimed under ``session`` may start now: a later session does not own it."""
        return self._session is session and self._clock() < self._ends

    async def start(self) -> Session:
        """Open the session and keep it alive until ``close``."""
        session = await self._open()
        self._task = asyncio.create_task(self._keep(), name="lease")
        return session

    async def current(self) -> Session:
        """The live session; waits for the next one where the last was lost.

        Raises:
            SessionLost: the lease is closed for good.
        """
        while not self.live:
            if self._closed:
                raise SessionLost("the worker session is closed", "Start the daemon again.")
            self._live.clear()
            await self._live.wait()
        assert self._session is not None
        return self._session

    def lost(self, session: Session) -> None:
        """The ledger says that this session's lease has ended."""
        if self._session is session:
            self._session = None
            self._live.clear()
            self._due.set()
            self._emitter.notice("session.lost", "error", session=session.id, instance=self._instance)

    def part(self, now: float) -> Part:
        """Whether it is renewed, or tried to be, at a moment of the monotonic clock."""
        ended = self._task is not None and self._task.done()
        return Part("the lease", now - self._round.at, self._lease_s / 3 + _STILL_S, ended)

    async def close(self, *, end: bool = True) -> None:
        """Stop renewing, and end the lease in the ledger where it can be reached.

        With ``end=False`` it runs out by itself: for a process in which a handler may still be at work.
        """
        self._closed = True
        self._live.set()
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._session and end:
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await self._ledger.close_session(self._session)
            except (LedgerUnavailable, TimeoutError):
                self._emitter.notice("session.not_closed", "warning", session=self._session.id)

    async def _open(self) -> Session:
        sent = self._clock()
        session = await self._ledger.open_session(
            self._instance, worker=self._worker, version=self._version, lease_s=self._lease_s
        )
        self._session, self._ends = session, sent + self._lease_s
        self.sessions.append(session.id)
        self._live.set()
        self._emitter.notice("session.opened", session=session.id, instance=self._instance)
        if self.on_open:
            self.on_open()
        return session

    async def _keep(self) -> None:
        while not self._closed:
            self._due.clear()
            pause_s = await self._beat()
            self._round.again()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    # A session that was lost is replaced now: until then every lane stands still.
                    await self._due.wait()

    async def _beat(self) -> float:
        """Renew, or open anew; the seconds until the next beat."""
        session = self._session
        try:
            if session is None:
                await self._open()
            else:
                await self._renew(session)
        except Exception as error:
            # Not only an outage: a defect that ended the renewals would stop the daemon for good, in silence.
            if session and not self.live:
                self.lost(session)
            self._complain(error)
            return min(_RETRY_S, self._lease_s / 10)
        self._failing = False
        self._watch.answered("lease")
        return self._lease_s / 3

    def _tell_renewal(self, result: str) -> None:
        """For the count of them; what matters is told beside."""
        self._emitter.notice("session.renewal", "debug", result=result)

    def _complain(self, error: Exception) -> None:
        self._tell_renewal("failed")
        if isinstance(error, LedgerUnavailable):
            self._watch.missed("lease", error)
        elif not self._failing:
            self._emitter.notice("session.renewal_failed", "warning", error=unquoted(error))
        self._failing = True

    async def _renew(self, session: Session) -> None:
        sent = self._clock()
        if await self._ledger.renew(session):
            self._ends = sent + self._lease_s
            self._live.set()
            self._tell_renewal("renewed")
        else:
            self._tell_renewal("refused")
            self.lost(session)
            await self._open()
