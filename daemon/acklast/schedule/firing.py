"""One firing, from its claim to its end: its rows become the jobs of a run, a page at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from acklast.config import Config, Custody
from acklast.config.app import load_callable
from acklast.config.schedules import Schedule
from acklast.custody import kept_raw
from acklast.errors import AcklastError, LedgerUnavailable
from acklast.ledger.about import NOTHING, RunAbout, RunCancelled, RunDiffers
from acklast.ledger.api import ManifestRow
from acklast.ledger.connect import Address
from acklast.ledger.firings import BadRow, Claimed, FiringLost, Firings, Page, Pages, Promise
from acklast.schedule.called import callable_pages
from acklast.schedule.query import sql_pages
from acklast.schedule.rows import NoRow, Read, Row, Rows, firing_of
from acklast.telemetry.events import Emitter
from acklast.template import BadField, KeyTemplate
from acklast.unquoted import unquoted
from acklast_topology.job import Job

_FIRST_S: Final = 5.0
_LONGEST_S: Final = 600.0
TRIES: Final = 20
"""After so many the firing is given up: about three hours."""


def wait_s(tries: int) -> float | None:
    """How long a firing waits that failed for the ``tries``-th time, from 0; None: it is given up."""
    return None if tries + 1 >= TRIES else min(_FIRST_S * 2**tries, _LONGEST_S)


class TooLate(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """The deadline of a firing's jobs has passed before they were promised."""

    def __init__(self) -> None:
        super().__init__("the deadline of its jobs has passed: none would start", "Nothing more is promised")


_FINAL: Final = (TooLate, RunCancelled, RunDiffers)


def maker_of(config: Config, claimed: Claimed) -> Maker:
    schedule = config.schedules[claimed.schedule]
    lanes = config.fan_outs.get(schedule.lane, (schedule.lane,))
    keeps = {lane: config.lanes[lane].custody is Custody.LEDGER for lane in lanes}
    return Maker(schedule, claimed, keeps, schedule.key_template())


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes jobs of a firing's rows."""

    schedule: Schedule
    claimed: Claimed
    keeps: Mapping[str, bool]
    """The lanes that get a job of each row, and whether the ledger is to keep their messages."""
    template: KeyTemplate

    def page(self, read: Read) -> Page:
        """What a page of rows promises; rows that are no job are told and pass."""
        promises, bad = list[Promise](), list[BadRow]()
        for row in read.rows:
            made = self._made(row)
            if isinstance(made, BadRow):
                bad.append(made)
            else:
                promises += made
        return Page(promises, bad, read.cursor, read.last, self._about())

    def key(self, row: Row) -> str:
        """
        Raises:
            BadField: the row has no key.
        """
        return self.template.render(self.claimed.run, row.fields)

    def _made(self, row: Row | NoRow) -> list[Promise] | BadRow:
        if isinstance(row, NoRow):
            return BadRow(row.where, row.problem)
        try:
            key = self.key(row)
            return [self._promise(lane, key, row.body) for lane in self.keeps]
        except (BadField, ValueError) as error:
            return BadRow(row.where, str(error))

    def _promise(self, lane: str, key: str, body: bytes) -> Promise:
        one, at = self.schedule, self.claimed.scheduled_at
        job = Job(lane, key, body, type=one.type, run=self.claimed.run, deadline=one.deadline(at))
        kept = kept_raw(job.raw(), key) if self.keeps[lane] else None
        return Promise(job, ManifestRow(lane, key, job.fingerprint, job.type, job.deadline, kept))

    def _about(self) -> RunAbout:
        one = self.schedule
        if self.claimed.pages:
            return NOTHING
        return RunAbout(one.run_deadline(self.claimed.scheduled_at), one.owner, one.labels)


class Worker:
    """Works firings off."""

    def __init__(
        self, config: Config, address: Address, firings: Firings, emitter: Emitter, *, lease_s: float
    ) -> None:
        self._config = config
        self._address = address
        self._firings = firings
        self._emitter = emitter
        self._lease_s = lease_s

    async def work(self, claimed: Claimed) -> None:
        """Promise a firing's jobs, page by page. What goes wrong is recorded, and tried again later.

        Cancelled, it gives the firing back: another goes on behind the last page.

        Raises:
            LedgerUnavailable: the ledger does not answer: the firing is claimed again after its lease.
        """
        try:
            async with self._kept(claimed):
                await self._pages(claimed)
        except FiringLost as error:
            # What it had promised is promised; the rest is promised there.
            self._emitter.notice("firing.lost", "warning", run=claimed.run, error=error.what)
        except LedgerUnavailable:
            raise
        except asyncio.CancelledError:
            with suppress(Exception):
                await asyncio.shield(self._firings.give_back(claimed))
            raise
        except Exception as error:
            await self._failed(claimed, error)

    async def _failed(self, claimed: Claimed, error: Exception) -> None:
        said = unquoted(error)
        again_s = None if isinstance(error, _FINAL) else wait_s(claimed.tries)
        await self._firings.fail(claimed, said, again_s)
        name, level = ("firing.failed", "warning") if again_s is not None else ("firing.given_up", "error")
        told = {"schedule": claimed.schedule, "run": claimed.run, "tries": claimed.tries + 1}
        self._emitter.notice(name, level, **told, error=said, again_s=again_s)

    async def _pages(self, claimed: Claimed) -> None:
        schedule, rows, bad = self._config.schedules[claimed.schedule], 0, 0
        deadline = schedule.deadline(claimed.scheduled_at)
        if deadline is not None and deadline <= claimed.now:
            raise TooLate
        maker = maker_of(self._config, claimed)
        async with Pages(self._address) as pages, self.reading(claimed, schedule.page) as read:
            async for one in read:
                page = maker.page(one)
                await pages.commit(claimed, page)
                rows, bad = rows + len(one.rows), bad + len(page.bad)
        self._emitter.notice("firing.done", schedule=claimed.schedule, run=claimed.run, rows=rows, bad=bad)

    @asynccontextmanager
    async def reading(self, claimed: Claimed, page: int) -> AsyncIterator[Rows]:
        """A firing's rows, ``page`` at a time, behind its cursor.

        Raises:
            RowsFailed, ConfigError: they cannot be read.
        """
        schedule = self._config.schedules[claimed.schedule]
        firing = firing_of(claimed, schedule)
        if schedule.rows is None:
            async with sql_pages(schedule, self._address, firing, page) as read, aclosing(read):
                yield read
        else:
            function = load_callable(self._config, f"schedules.{claimed.schedule}.rows", schedule.rows)
            async with aclosing(callable_pages(function, schedule, firing, page)) as read:
                yield read

    @asynccontextmanager
    async def _kept(self, claimed: Claimed) -> AsyncIterator[None]:
        """Keep the claim, however long a page takes."""
        task = asyncio.create_task(self._renew(claimed), name=f"lease of {claimed.run}")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _renew(self, claimed: Claimed) -> None:
        ours = True
        while ours:
            await asyncio.sleep(self._lease_s / 3)
            with suppress(LedgerUnavailable):
                ours = await self._firings.renew(claimed)
