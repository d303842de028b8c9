"""Dead letters read for people: by kind, page by page, and one of them with all that is known of it.

Pages and groups are of letters that wait for somebody; one by its id is shown whatever became of it.

Nothing here walks the letters: a page is read from an index, whichever page it is, and the groups are counted
already (``dead_counts``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from acklast.ledger.operate import Operations


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters are meant; each field that is not None narrows it. ``run`` is "" for those of no run.

    ``since`` and ``until`` bound the last failure; ``until`` itself is outside.
    """

    lane: str | None = None
    run: str | None = None
    reason: str | None = None
    failure: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def all(self) -> bool:
        """Whether nothing is narrowed."""
        return self == Wanted()


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page ended: the next one begins after it."""

    at: datetime
    id: int


@dataclass(frozen=True, slots=True)
class Group:
    """Letters that failed alike.

    ``first_at`` is when the first of them came since there was none, ``last_at`` when one came last.
    """

    lane: str
    run: str | None
    reason: str
    failure: str
    letters: int
    first_at: datetime | None
    last_at: datetime | None
    versions: Sequence[str]
    """Of the workers of those that are there, by when they came first."""
    last_hour: int
    """That came within the last hour, give or take ten minutes."""
    hour_before: int
    last_day: int

    @property
    def trend(self) -> str:
        """``rising``, ``falling`` or ``steady`` beside the hour before; ``quiet``: none came in either."""
        if self.last_hour == self.hour_before:
            return "steady" if self.last_hour else "quiet"
        return "rising" if self.last_hour > self.hour_before else "falling"


@dataclass(frozen=True, slots=True)
class Entry:
    """One letter in a list: everything but its message."""

    id: int
    lane: str
    key: str | None
    run: str | None
    type: str | None
    reason: str
    detail: str
    failure: str
    attempts: int
    first_failure_at: datetime
    last_failure_at: datetime
    seen: int
    worker: str
    version: str
    trace_id: str | None
    content_type: str | None
    payload_bytes: int | None
    """None where retention has removed the message."""
    held: bool = False
    """Its job was unresolved when it was filed."""
    closed_at: datetime | None = None
    """Since when it waits for nobody any more; ``closed_as`` says why: ``redriven`` or ``done``."""
    closed_as: str | None = None

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.last_failure_at, self.id)


@dataclass(frozen=True, slots=True)
class Whole:
    """A letter with its message, where that was asked for."""

    entry: Entry
    exchange: str
    routing_key: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class Note:
    """What somebody said of a letter, or that they removed it."""

    at: datetime
    actor: str
    login: str
    action: str
    text: str


# Of the letters that were counted; the rows are few, and as many however many letters there are.
_GROUPS: Final = """
with part as (
    select lane, run, reason, failure, version, sum(letters) as letters, min(first_at) as first_at,
           max(last_at) as last_at,
           sum(arrived) filter (where last_at > t.now - interval '1 hour') as last_hour,
           sum(arrived) filter (where last_at > t.now - interval '2 hours'
                                  and last_at <= t.now - interval '1 hour') as hour_before,
           sum(arrived) filter (where last_at > t.now - interval '1 day') as last_day
    from (select clock_timestamp()) as t (now) cross join acklast.dead_counts
    where ($1::text is null or lane = $1) and ($2::text is null or run = $2)
      and ($3::text is null or reason = $3) and ($4::text is null or failure = $4)
    group by lane, run, reason, failure, version
)
select lane, nullif(run, '') as run, reason, failure, sum(letters)::bigint as letters,
       min(first_at) as first_at, max(last_at) as last_at,
       array_agg(version order by first_at) filter (where letters > 0) as versions,
       coalesce(sum(last_hour), 0)::bigint as last_hour,
       coalesce(sum(hour_before), 0)::bigint as hour_before, coalesce(sum(last_day), 0)::bigint as last_day
from part group by lane, run, reason, failure having sum(letters) > 0
order by sum(letters) desc, lane, run nulls first, reason, failure limit $5
"""


async def groups(operations: Operations, wanted: Wanted, limit: int) -> list[Group]:
    """The kinds of failures, the largest first. ``since`` and ``until`` do not narrow it.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    named = (wanted.lane, wanted.run, wanted.reason, wanted.failure)
    return [Group(**dict(row)) for row in await operations.fetch(_GROUPS, *named, limit)]


_TOTAL: Final = """
select coalesce(sum(letters), 0)::bigint as letters from acklast.dead_counts
where ($1::text is null or lane = $1) and ($2::text is null or run = $2)
  and ($3::text is null or reason = $3) and ($4::text is null or failure = $4)
"""


async def total(operations: Operations, wanted: Wanted) -> int:
    """How many letters there are, whenever they came.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    [row] = await operations.fetch(_TOTAL, wanted.lane, wanted.run, wanted.reason, wanted.failure)
    return int(row["letters"])


_ABOUT: Final = """d.id, d.lane, d.key, d.run, d.type, d.reason, d.detail, d.failure, d.attempts,
       d.first_failure_at, d.last_failure_at, d.seen, d.worker, d.version, d.trace_id, d.content_type,
       d.held, d.closed_at, d.closed_as"""
# Who may not read a message may know how large it is: of its columns nothing else is named here.
ENTRY: Final = f"{_ABOUT}, acklast.letter_bytes(d.id) as payload_bytes"
_BARE: Final = f"""{ENTRY}, d.exchange, d.routing_key, '{{}}'::jsonb as headers, '{{}}'::jsonb as properties,
       null::bytea as payload"""
_WHOLE: Final = f"""{_ABOUT}, octet_length(d.payload) as payload_bytes, d.exchange, d.routing_key, d.headers,
       d.properties, d.payload"""

# A page is merged from the next letters of each lane, each found at its place in the index: there are few
# lanes, and a walk from one to the next in the index finds them.
_BY_LANE: Final = """
with recursive lanes (lane) as (
    (select lane from acklast.dead_letters where lane >= coalesce($1::text, '') and closed_at is null
     order by lane limit 1)
    union all
    select (select d.lane from acklast.dead_letters d where d.lane > l.lane and d.closed_at is null
            order by d.lane limit 1)
    from lanes l where l.lane is not null and $1 is null
)
select p.* from (select lane from lanes where lane is not null and ($1 is null or lane = $1)) as w
cross join lateral (
    select {columns} from acklast.dead_letters d
    where d.lane = w.lane and d.closed_at is null
      and d.last_failure_at >= coalesce($2::timestamptz, '-infinity')
      and (d.last_failure_at, d.id) < (coalesce($3::timestamptz, 'infinity'), $4::bigint)
    order by d.last_failure_at desc, d.id desc limit $5
) as p
order by p.last_failure_at desc, p.id desc limit $5
"""

# And so from the groups that are meant.
_BY_GROUP: Final = """
with wanted as materialized (
    select distinct lane, run, reason, failure from acklast.dead_counts
    where ($1::text is null or lane = $1) and ($6::text is null or run = $6)
      and ($7::text is null or reason = $7) and ($8::text is null or failure = $8)
)
select p.* from wanted w
cross join lateral (
    select {columns} from acklast.dead_letters d
    where d.failure = w.failure and d.lane = w.lane and d.reason = w.reason and coalesce(d.run, '') = w.run
      and d.closed_at is null and d.last_failure_at >= coalesce($2::timestamptz, '-infinity')
      and (d.last_failure_at, d.id) < (coalesce($3::timestamptz, 'infinity'), $4::bigint)
    order by d.last_failure_at desc, d.id desc limit $5
) as p
order by p.last_failure_at desc, p.id desc limit $5
"""


def page_sql(wanted: Wanted, columns: str = ENTRY) -> str:
    """The statement of a page."""
    grouped = (wanted.run, wanted.reason, wanted.failure) != (None, None, None)
    return (_BY_GROUP if grouped else _BY_LANE).format(columns=columns)


def page_arguments(wanted: Wanted, after: Cursor | None, limit: int) -> tuple[Any, ...]:
    """Its parameters."""
    start = (after.at, after.id) if after else (wanted.until, 0)
    arguments = (wanted.lane, wanted.since, *start, limit)
    if (wanted.run, wanted.reason, wanted.failure) == (None, None, None):
        return arguments
    return (*arguments, wanted.run, wanted.reason, wanted.failure)


async def page(
    operations: Operations, wanted: Wanted, limit: int, after: Cursor | None = None
) -> list[Entry]:
    """The letters that failed last, or those after a place that was listed.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(page_sql(wanted), *page_arguments(wanted, after, limit))
    return [Entry(**dict(row)) for row in rows]


async def whole_page(
    operations: Operations, wanted: Wanted, limit: int, after: Cursor | None = None, *, message: bool = True
) -> list[Whole]:
    """The same with their messages; without ``message`` these are as if they were gone, and not read.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    sql = page_sql(wanted, _WHOLE if message else _BARE)
    rows = await operations.fetch(sql, *page_arguments(wanted, after, limit))
    return [whole_of(dict(row)) for row in rows]


def one_sql(more: str = "", join: str = "", *, message: bool = True) -> str:
    """The statement that reads the letter with the id ``$1``, and what else is known of it."""
    columns = (_WHOLE if message else _BARE) + (f", {more}" if more else "")
    return f"select {columns} from acklast.dead_letters d {join} where d.id = $1"  # noqa: S608 - ours


async def one(operations: Operations, letter: int, *, message: bool = True) -> Whole | None:
    """A letter; None where there is none with this id (any more). ``message``: as for ``whole_page``.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(one_sql(message=message), letter)
    return whole_of(dict(rows[0])) if rows else None


def whole_of(found: dict[str, Any]) -> Whole:
    """A letter with its message, of the columns as they were read."""
    payload = found.pop("payload")
    message = {
        "exchange": found.pop("exchange"),
        "routing_key": found.pop("routing_key"),
        "headers": _object(found.pop("headers")),
        "properties": _object(found.pop("properties")),
    }
    return Whole(Entry(**found), **message, payload=payload)


def _object(text: str) -> dict[str, Any]:
    """A JSON object. What Postgres takes and Python does not is text: it can be shown all the same."""
    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):  # a number of thousands of digits, a thousand braces
        return {"unreadable": text[:1000]}
    return found


_NOTES: Final = """
select at, actor, coalesce(detail->>'login', '') as login, action,
       coalesce(detail->>'note', detail->>'reason', '') as text
from acklast.audit where action like 'dead.%' and detail->>'letter' = $1 order by id
"""


async def notes(operations: Operations, letter: int) -> list[Note]:
    """What was said of a letter, the oldest first, and by whom it was removed, if it was.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return [Note(**dict(row)) for row in await operations.fetch(_NOTES, str(letter))]
