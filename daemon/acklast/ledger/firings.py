"""A firing in the ledger: claimed by one worker at a time, worked off page by page, and its end.

A page's jobs, their place in the outbox and the place that the firing has reached are one commit. Every write
names the claim's fence: whoever lost the claim, for having been away too long, changes nothing any more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from acklast.errors import AcklastError
from acklast.ledger.about import NOTHING, RunAbout
from acklast.ledger.api import ManifestRow
from acklast.ledger.connect import Address, Connection, Link, unavailable_as_error
from acklast.ledger.evidence import clean, storable_json
from acklast.ledger.manifest import promise
from acklast.ledger.outbox import promise_many
from acklast_topology.items import Manifested
from acklast_topology.job import Job

BAD_ROWS: Final = 20
"""How many of a firing's bad rows are kept."""


class FiringLost(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """Another worker has claimed the firing meanwhile."""

    def __init__(self, run: str) -> None:
        super().__init__(f"the firing of run {run!r} is another worker's now", "It goes on there")


@dataclass(frozen=True, slots=True)
class Claimed:
    """A firing that is ours while its lease lives. ``cursor`` is the last row that is done."""

    schedule: str
    scheduled_at: datetime
    run: str
    fence: int
    tries: int
    cursor: str | None
    pages: int
    now: datetime


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of which no job can be made: where it is, as its source tells it, and why."""

    row: str
    problem: str


@dataclass(frozen=True, slots=True)
class Promise:
    """What one row promises: the job, and its place in the run's manifest."""

    job: Job
    row: ManifestRow


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in their order, and where to go on after them."""

    promises: Sequence[Promise] = ()
    bad: Sequence[BadRow] = ()
    cursor: str | None = None
    last: bool = False
    about: RunAbout = field(default=NOTHING)
    """What is said of the run; with the first page alone, so that it can be changed meanwhile."""


# Who reads its rows from the start again counts them from the start again; the jobs are promised already.
_CLAIM: Final = """
update acklast.firings f
set fence = f.fence + 1, lease_until = clock_timestamp() + make_interval(secs => $1), worker = $2,
    state = 'open', started_at = coalesce(f.started_at, clock_timestamp()), finished_at = null,
    rows = case when f.cursor is null then f.promised else f.rows end,
    known = case when f.cursor is null then 0 else f.known end,
    conflicts = case when f.cursor is null then 0 else f.conflicts end,
    bad = case when f.cursor is null then 0 else f.bad end,
    bad_rows = case when f.cursor is null then '[]' else f.bad_rows end
where f.id = (
    select o.id from acklast.firings o
    where {which} and (o.lease_until is null or o.lease_until <= clock_timestamp())
    order by o.due_at, o.id limit 1
    for update skip locked
)
returning f.schedule, f.scheduled_at, f.run, f.fence, f.tries, f.cursor, f.pages, clock_timestamp() as now
"""
_CLAIM_DUE: Final = _CLAIM.format(
    which="o.state = 'open' and o.due_at <= clock_timestamp() and o.schedule = any($3)"
)
_CLAIM_RUN: Final = _CLAIM.format(which="o.state in ('open', 'failed') and o.run = $3")

_RENEW: Final = """
update acklast.firings set lease_until = clock_timestamp() + make_interval(secs => $3)
where run = $1 and fence = $2 and state = 'open'
returning run
"""
_GIVE_BACK: Final = (
    "update acklast.firings set lease_until = null where run = $1 and fence = $2 and state = 'open'"
)
# Given up where there is nothing to wait for.
_FAIL: Final = """
update acklast.firings
set tries = tries + 1, error = $3, lease_until = null,
    state = case when $4::float8 is null then 'failed' else 'open' end,
    finished_at = case when $4::float8 is null then clock_timestamp() end,
    due_at = clock_timestamp() + make_interval(secs => coalesce($4, 0))
where run = $1 and fence = $2 and state = 'open' returning run
"""

_LOCK: Final = "select run from acklast.firings where run = $1 and fence = $2 and state = 'open' for update"
_ADVANCE: Final = """
update acklast.firings
set cursor = $2, pages = pages + 1, rows = rows + $3, promised = promised + $4, known = known + $5,
    conflicts = conflicts + $6, bad = bad + $7,
    bad_rows = case when jsonb_array_length(bad_rows) < $9 then bad_rows || $8::jsonb else bad_rows end,
    state = case when $10 then 'done' else 'open' end,
    finished_at = case when $10 then clock_timestamp() end,
    lease_until = case when $10 then null else lease_until end,
    error = case when $10 then null else error end
where run = $1
"""


class Firings:
    """Claims, kept and given back, on one connection."""

    def __init__(self, link: Link, worker: str, lease_s: float) -> None:
        self._link = link
        self._worker = worker
        self._lease_s = lease_s

    async def claim(self, schedules: Sequence[str]) -> Claimed | None:
        """The firing of these schedules that is due first and that nobody works on.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        rows = await self._link.fetch(_CLAIM_DUE, self._lease_s, self._worker, list(schedules))
        return Claimed(**rows[0]) if rows else None

    async def claim_run(self, run: str) -> Claimed | None:
        """This one, unless it is done or somebody works on it; also where it was given up."""
        rows = await self._link.fetch(_CLAIM_RUN, self._lease_s, self._worker, run)
        return Claimed(**rows[0]) if rows else None

    async def renew(self, claimed: Claimed) -> bool:
        """Keep it for another lease; whether it is still ours."""
        return bool(await self._link.fetch(_RENEW, claimed.run, claimed.fence, self._lease_s))

    async def give_back(self, claimed: Claimed) -> None:
        """Let another go on at once."""
        await self._link.fetch(_GIVE_BACK, claimed.run, claimed.fence)

    async def fail(self, claimed: Claimed, error: str, wait_s: float | None) -> None:
        """Record why it did not come to its end; it is tried again after ``wait_s``, or never where None."""
        await self._link.fetch(_FAIL, claimed.run, claimed.fence, clean(error, 1000), wait_s)


class Pages:
    """The connection on which one firing's pages are committed. An async context manager."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Connection | None = None

    async def __aenter__(self) -> Self:
        self._connection = await self._address.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._connection is not None
        self._connection.terminate()

    async def commit(self, claimed: Claimed, page: Page) -> list[Manifested]:
        """Promise a page's jobs, to be published by a relay, and move on; what the ledger says of each.

        Raises:
            FiringLost: another worker has claimed it: nothing is done.
            LedgerUnavailable: it may or may not have been done: the next claim tells.
            RunCancelled, RunDiffers: the run takes no such jobs.
        """
        assert self._connection is not None
        with unavailable_as_error():
            async with self._connection.transaction():
                return await _commit(self._connection, claimed, page)


async def _commit(connection: Connection, claimed: Claimed, page: Page) -> list[Manifested]:
    # First: whoever claims it next waits until this page is in, and so begins behind it.
    if not await connection.fetchval(_LOCK, claimed.run, claimed.fence):
        raise FiringLost(claimed.run)
    answers = await promise(connection, claimed.run, [one.row for one in page.promises], page.about)
    new = [one.job for one, said in zip(page.promises, answers, strict=True) if said is Manifested.NEW]
    await promise_many(connection, new)
    conflicts = answers.count(Manifested.CONFLICT)
    counts = (
        len(answers) + len(page.bad),
        len(new),
        len(answers) - len(new) - conflicts,
        conflicts,
        len(page.bad),
    )
    shown = [{"row": bad.row[:200], "problem": bad.problem[:500]} for bad in page.bad[:BAD_ROWS]]
    told = (storable_json(shown), BAD_ROWS, page.last)
    await connection.execute(_ADVANCE, claimed.run, page.cursor, *counts, *told)
    return answers


def rows_shown(text: str) -> list[dict[str, Any]]:
    """The bad rows that are kept of a firing."""
    shown: list[dict[str, Any]] = json.loads(text)
    return shown[:BAD_ROWS]
