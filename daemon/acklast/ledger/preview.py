"""What an enqueue would find, read without a change: jobs that are known, and what is open before it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from acklast.ledger.api import State
from acklast.ledger.connect import Address
from acklast.ledger.manifest import Known, answer_to
from acklast.ledger.migrate import check_schema_of
from acklast.ledger.operate import Operations
from acklast_topology.items import Manifested
from acklast_topology.job import Job

# All open jobs of some lanes are counted: no index is by state, so it may be a walk through many rows.
_SETTINGS: Final = {"statement_timeout": "60s", "default_transaction_read_only": "on"}
_TIMEOUT_S: Final = 75.0


@dataclass(frozen=True, slots=True)
class Open:
    """Open jobs of one run in one lane. ``deadline``: the run's, else the latest of its jobs'."""

    lane: str
    run: str | None
    jobs: int
    deadline: datetime | None


_KNOWN: Final = """
select lane, key, state, fence, fingerprint from acklast.jobs
where lane = any($1::text[]) and key = any($2::text[])
"""

_OPEN: Final = """
select j.lane, j.run, count(*) as jobs, coalesce(r.deadline, max(j.deadline)) as deadline
from acklast.jobs j left join acklast.runs r on r.run = j.run
where j.lane = any($1::text[]) and j.state in ('queued', 'claimed', 'waiting')
  and not exists (select from acklast.cancelled_runs c where c.run = j.run)
group by j.lane, j.run, r.deadline
order by min(j.enqueued_at), j.lane, j.run
"""


class Preview:
    """One connection that only reads."""

    def __init__(self, operations: Operations) -> None:
        self.operations = operations

    @classmethod
    @asynccontextmanager
    async def connect(cls, address: Address) -> AsyncIterator[Preview]:
        """
        Raises:
            ConfigError, SchemaError: the ledger must not be used like this.
            LedgerUnavailable: it does not answer.
        """
        connection = await address.open(_SETTINGS, timeout_s=_TIMEOUT_S)
        try:
            await check_schema_of(connection)
            yield cls(Operations(connection))
        finally:
            connection.terminate()

    async def answers(self, jobs: Sequence[Job]) -> list[Manifested]:
        """What the ledger would say of each, if it were promised now.

        Raises:
            LedgerUnavailable: it does not answer.
        """
        lanes, keys = list({job.lane for job in jobs}), [job.key for job in jobs]
        known = {
            (row["lane"], row["key"]): Known(State(row["state"]), row["fence"], row["fingerprint"])
            for row in await self.operations.fetch(_KNOWN, lanes, keys)
        }
        return [_answer(job, known.get((job.lane, job.key))) for job in jobs]

    async def open(self, lanes: Collection[str]) -> list[Open]:
        """What is open in these lanes; in each lane the first to come first.

        Raises:
            LedgerUnavailable: it does not answer, or cannot count that many within a minute.
        """
        return [Open(**row) for row in await self.operations.fetch(_OPEN, list(lanes))]


def _answer(job: Job, known: Known | None) -> Manifested:
    return Manifested.NEW if known is None else answer_to(job.fingerprint, known)
