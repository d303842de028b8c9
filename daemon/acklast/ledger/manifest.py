"""A run's promise: its jobs enter the ledger, queued or waiting, before any of them is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from acklast import faults
from acklast.ledger.about import NOTHING, RunAbout, RunCancelled, joined
from acklast.ledger.api import ManifestRow, State
from acklast.ledger.evidence import storable_json
from acklast.ledger.notes import Place
from acklast.ledger.pool import Handle
from acklast.ledger.reading import about_of
from acklast_topology.items import Manifested


@dataclass(frozen=True, slots=True)
class Known:
    """A job that the ledger had before."""

    state: State
    fence: int
    fingerprint: bytes | None


def answers(
    rows: Sequence[ManifestRow], new: frozenset[Place] | set[Place], known: Mapping[Place, Known]
) -> list[Manifested]:
    """What to say of each row. ``new`` are the jobs that this call has inserted."""
    first: dict[Place, bytes] = {}
    said = []
    for row in rows:
        place = (row.lane, row.key)
        if place in first:
            same = first[place] == row.fingerprint
            said.append(Manifested.DUPLICATE if same else Manifested.CONFLICT)
            continue
        first[place] = row.fingerprint
        said.append(Manifested.NEW if place in new else answer_to(row.fingerprint, known[place]))
    return said


def answer_to(fingerprint: bytes, job: Known) -> Manifested:
    """What to say of a promise whose key the ledger had before."""
    if job.fingerprint is not None and job.fingerprint != fingerprint:
        return Manifested.CONFLICT
    started = job.state not in (State.QUEUED, State.WAITING) or job.fence > 0
    return Manifested.DUPLICATE if started else Manifested.OPEN


# COPY takes five times the rows of any INSERT, but has no ON CONFLICT: it goes to a table of this
# transaction's own.
_STAGE: Final = """
create temporary table acklast_manifest (
    n integer, lane text collate "C", key text collate "C", fingerprint bytea, type text,
    deadline timestamptz, priority smallint, not_before timestamptz
) on commit drop
"""

_STAGED: Final = ("lane", "key", "fingerprint", "type", "deadline", "priority", "not_before")

# In key order, like every statement that inserts jobs: two manifests of the same keys wait for each other,
# and never in a circle. Of a key that is repeated the first row counts.
_INSERT: Final = """
insert into acklast.jobs (lane, key, state, fingerprint, type, run, deadline, available_at,
                          priority)
select distinct on (lane, key) lane, key, case when not_before > now() then 'waiting' else 'queued' end,
       fingerprint, type, $1, deadline, case when not_before > now() then not_before end, priority
from pg_temp.acklast_manifest
order by lane, key, n
on conflict (lane, key) do nothing
returning lane, key
"""

# A statement of its own, and so a later snapshot: it sees what the insert ran into.
_KNOWN: Final = """
select distinct j.lane, j.key, j.state, j.fence, j.fingerprint
from pg_temp.acklast_manifest m join acklast.jobs j on j.lane = m.lane and j.key = m.key
"""

# What was promised before and never started is kept as well: the lane may not have asked for it then. Of a
# key that is repeated in the rows any will do: the fingerprints are the same.
_STAGE_KEPT: Final = """
create temporary table acklast_kept (
    lane text collate "C", key text collate "C", fingerprint bytea, header bytea, body bytea
) on commit drop
"""
_KEEP: Final = """
insert into acklast.custody (lane, key, header, body)
select k.lane, k.key, k.header, k.body
from pg_temp.acklast_kept k join acklast.jobs j on j.lane = k.lane and j.key = k.key
where j.state in ('queued', 'waiting') and j.fence = 0 and j.fingerprint = k.fingerprint
order by k.lane, k.key
on conflict (lane, key) do nothing
"""

# Last, so that this row is locked for a moment only. What was known before stays: a contradiction is seen in
# what comes back.
_RUN: Final = """
insert into acklast.runs as r (run, manifest, deadline, owner, labels) values ($1, $2, $3, $4, $5::jsonb)
on conflict (run) do update
set manifest = coalesce(r.manifest, 0) + excluded.manifest,
    deadline = coalesce(r.deadline, excluded.deadline), owner = coalesce(r.owner, excluded.owner),
    labels = excluded.labels || r.labels
returning deadline, owner, labels
"""

# A statement of its own, with the run's row locked, as whoever cancels locks it: so each sees the other.
_CANCELLED: Final = "select exists (select from acklast.cancelled_runs where run = $1)"


async def promise(
    connection: Handle, run: str, rows: Sequence[ManifestRow], about: RunAbout = NOTHING
) -> list[Manifested]:
    """Insert a run's jobs, in one transaction; one answer per row, in order.

    Raises:
        RunDiffers: ``about`` contradicts what is known of the run.
        RunCancelled: it was cancelled.
    """
    async with connection.transaction():
        await connection.execute(_STAGE)
        await connection.copy_records_to_table(
            "acklast_manifest",
            schema_name="pg_temp",
            records=((n, *(getattr(row, name) for name in _STAGED)) for n, row in enumerate(rows)),
        )
        new, known = await _insert(connection, run, {(row.lane, row.key) for row in rows})
        await _keep(connection, rows)
        await _enter(connection, run, len(new), about)
        if faults.ARMED:
            faults.point("promising")
    return answers(rows, new, known)


async def _enter(connection: Handle, run: str, new: int, about: RunAbout) -> None:
    told = (about.deadline, about.owner, storable_json(dict(about.labels)))
    [row] = await connection.fetch(_RUN, run, new, *told)
    joined(run, about_of(row), about)
    if await connection.fetchval(_CANCELLED, run):
        raise RunCancelled(run)


async def _keep(connection: Handle, rows: Sequence[ManifestRow]) -> None:
    """Take the messages into custody where that is asked."""
    kept = [
        (row.lane, row.key, row.fingerprint, row.kept.header, row.kept.body)
        for row in rows
        if row.kept is not None
    ]
    if kept:
        await connection.execute(_STAGE_KEPT)
        await connection.copy_records_to_table("acklast_kept", schema_name="pg_temp", records=kept)
        await connection.execute(_KEEP)


async def _insert(
    connection: Handle, run: str, places: set[Place]
) -> tuple[set[Place], Mapping[Place, Known]]:
    """Insert what is staged: the jobs that are new, and those that the inserts ran into."""
    new, known = set[Place](), dict[Place, Known]()
    # Again where a job was in the way of the insert and was pruned before it could be looked at.
    while len(new) + len(known) < len(places):
        new |= {(row["lane"], row["key"]) for row in await connection.fetch(_INSERT, run)}
        if len(new) < len(places):
            found = {(row["lane"], row["key"]): _known(row) for row in await connection.fetch(_KNOWN)}
            known = {place: job for place, job in found.items() if place not in new}
    return new, known


def _known(row: asyncpg.Record) -> Known:
    return Known(State(row["state"]), row["fence"], row["fingerprint"])
