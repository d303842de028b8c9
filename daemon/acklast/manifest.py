"""The ledger as the manifest of ``Publisher.enqueue_many``: a run's promise, before anything is published."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Self

from acklast import faults
from acklast.custody import kept_raw
from acklast.ledger.about import NOTHING, RunAbout
from acklast.ledger.api import Ledger, ManifestRow
from acklast.ledger.connect import Dsn
from acklast.ledger.postgres import PostgresLedger
from acklast_topology.items import Manifested
from acklast_topology.job import Job


class LedgerManifest:
    """Implements ``acklast_topology.items.Manifest`` on a ledger."""

    def __init__(self, ledger: Ledger, *, custody: Collection[str] = (), about: RunAbout = NOTHING) -> None:
        """``custody``: the lanes whose messages the ledger is to keep (``custody = "ledger"`` there).

        ``about``: the run's deadline, owner and labels.
        """
        self._ledger = ledger
        self._custody = frozenset(custody)
        self._about = about

    async def promise(self, run: str, jobs: Sequence[Job]) -> Sequence[Manifested]:
        """Promise jobs of a run, in one transaction; one answer for each, in order.

        Raises:
            RunDiffers: the run is known with another deadline, owner or label; nothing was promised.
            RunCancelled: the run is cancelled; nothing was promised.
            LedgerUnavailable: the ledger does not answer; the jobs may or may not be promised.
        """
        answers = await self._ledger.manifest(run, [self._row(job) for job in jobs], self._about)
        if faults.ARMED:
            faults.point("promised")
        return answers

    def _row(self, job: Job) -> ManifestRow:
        kept = kept_raw(job.raw(), job.key) if job.lane in self._custody else None
        promised = (job.lane, job.key, job.fingerprint, job.type, job.deadline, kept)
        return ManifestRow(*promised, job.priority, job.not_before)


class PostgresManifest(LedgerManifest):
    """The same with a connection of its own."""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, dsn: Dsn, *, custody: Collection[str] = (), about: RunAbout = NOTHING
    ) -> AsyncIterator[Self]:
        """The manifest in the ledger at ``dsn``, for as long as the block takes.

        Raises:
            ConfigError, SchemaError: the ledger must not be used like this.
            LedgerUnavailable: it does not answer.
        """
        ledger = await PostgresLedger.connect(dsn, pool_size=1)
        try:
            yield cls(ledger, custody=custody, about=about)
        finally:
            await ledger.close()
