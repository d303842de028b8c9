"""Questions about unresolved jobs as a daemon answers them.

A question belongs to the worker session that has taken it. Once that has ended, or its lease is over, another
may take it: it is asked at least once, and only the answer of its owner counts.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import asyncpg

from acklast.ledger.connect import Address, Link
from acklast.ledger.dead import Whole, one_sql, whole_of
from acklast.ledger.evidence import REASON_LIMIT, clean, storable_json
from acklast.ledger.retrying import RETRIED, Retrying

_MANY: Final = 1_000


class Found(StrEnum):
    HAPPENED = "happened"
    NOT_HAPPENED = "not_happened"
    UNKNOWN = "unknown"


class Effect(StrEnum):
    """What becomes of the job; ``SUPERSEDED``: not by this question."""

    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"
    UNRESOLVED = "unresolved"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Question:
    """One that this session has taken."""

    id: int
    session: int
    letter: int
    lane: str
    key: str
    fence: int


@dataclass(frozen=True, slots=True)
class Subject:
    """The job that a question is about, with its message."""

    letter: Whole
    fence: int
    attempts: int
    rate_limited: int
    deadline: datetime | None
    stopped: bool
    """Its run is cancelled."""
    now: datetime


@dataclass(frozen=True, slots=True)
class Buried:
    """Why a job is dead now."""

    reason: str
    detail: str
    failure: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found, and what follows. ``code``: why nobody can tell."""

    found: Found
    effect: Effect
    started_at: datetime
    ended_at: datetime
    result: Any = None
    code: str = ""
    detail: str = ""
    buried: Buried | None = None


# Of those of the asking session $2 it works on $3. Any other one it has taken without hearing of it: the
# answer was lost.
_FREE: Final = """(w.id is null or w.ended_at is not null or w.lease_until <= clock_timestamp()
                   or (q.session = $2 and q.id <> all($3::bigint[])))"""

_WAITING: Final = f"""
select l.lane, n.questions from unnest($1::text[]) as l (lane) cross join lateral (
    select count(*)::int as questions from (
        select from acklast.reconciliations q left join acklast.workers w on w.id = q.session
        where q.lane = l.lane and q.done_at is null and q.found is null and {_FREE} limit {_MANY}
    ) as f
) as n where n.questions > 0
"""  # noqa: S608 - ours

_TAKE: Final = f"""
with next as materialized (
    select q.id from acklast.reconciliations q left join acklast.workers w on w.id = q.session
    where q.lane = $1 and q.done_at is null and q.found is null and {_FREE}
    order by q.id limit 1
    for no key update of q skip locked
)
update acklast.reconciliations q set session = $2 from next n
where q.id = n.id and exists (select from acklast.workers w
                              where w.id = $2 and w.ended_at is null and w.lease_until > clock_timestamp())
returning q.id, q.letter, q.lane, q.key, q.fence
"""  # noqa: S608 - ours

_RELEASE: Final = """
update acklast.reconciliations set session = null where id = $1 and session = $2 and found is null
"""

_SUBJECT: Final = one_sql(
    """j.attempts as spent, j.fence, j.rate_limited, j.deadline, clock_timestamp() as now,
       exists (select from acklast.cancelled_runs c where c.run = j.run) as stopped""",
    """join acklast.jobs j on j.lane = d.lane and j.key = d.key and j.state = 'unresolved'
       and j.fence = d.fence and j.fence = $2""",
)

# The job is locked before its question, as everybody does who locks both.
_ANSWER: Final = """
with me as materialized (
    select coalesce(max(w.worker), '') as worker, coalesce(max(w.version), '') as version
    from acklast.workers w where w.id = $2
),
held as materialized (
    select j.lane, j.key, j.run, j.attempts, j.fence + 1 as fence
    from acklast.reconciliations q join acklast.jobs j on j.lane = q.lane and j.key = q.key
    where q.id = $1 and q.session = $2 and q.done_at is null and q.found is null
      and j.state = 'unresolved' and j.fence = q.fence
    for no key update of j
),
answered as (
    update acklast.reconciliations q
    set found = $3, code = nullif($4, ''), fence = h.fence,
        effect = nullif($6, 'retry'), done_at = case when $6 <> 'retry' then clock_timestamp() end
    from held h where q.id = $1 and q.session = $2 and q.done_at is null and q.found is null
    returning q.*, h.run, h.attempts
),
changed as (
    update acklast.jobs j
    set state = case when $6 in ('done', 'dead') then $6 else j.state end, fence = a.fence,
        result = case when $6 = 'done' then $7::jsonb else j.result end,
        reason = case $6 when 'done' then null when 'dead' then $10 else j.reason end,
        effect_at = case when $6 = 'done' then $9 else j.effect_at end,
        recorded_at = case when $6 in ('done', 'dead') then clock_timestamp() else j.recorded_at end
    from answered a where j.lane = a.lane and j.key = a.key
),
lettered as (
    update acklast.dead_letters d
    set fence = a.fence, held = $6 <> 'dead', reason = coalesce($10, d.reason),
        detail = coalesce($11, d.detail), failure = coalesce($12, d.failure),
        last_failure_at = case when $6 = 'dead' then clock_timestamp() else d.last_failure_at end,
        closed_at = case when $6 = 'done' then clock_timestamp() end,
        closed_as = case when $6 = 'done' then 'done' end
    from answered a where d.id = a.letter
),
freed as (
    delete from acklast.custody c using answered a
    where $6 in ('done', 'dead') and c.lane = a.lane and c.key = a.key
),
tried as (
    insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, detail, started_at, ended_at,
                                  worker, version)
    select a.lane, a.key, a.fence, a.attempts, 'reconciled', coalesce(nullif($4, ''), $3), $5, $8, $9,
           m.worker, m.version
    from answered a cross join me m
),
told as (
    insert into acklast.audit (actor, action, lane, key, run, detail)
    select a.actor, 'unresolved.found', a.lane, a.key, a.run,
           jsonb_build_object('letter', a.letter::text, 'question', a.id, 'found', $3::text, 'code', $4::text,
                              'effect', $6::text, 'worker', m.worker, 'reason', a.reason, 'login', a.login,
                              'role', session_user)
    from answered a cross join me m
)
select id from answered
"""

_TOO_LATE: Final = """
update acklast.reconciliations
set found = $3, code = nullif($4, ''), effect = 'superseded', done_at = clock_timestamp()
where id = $1 and session = $2 and done_at is null and found is null
"""

_ANSWERED: Final = """
select from acklast.reconciliations
where id = $1 and session = $2 and found is not null and effect is distinct from 'superseded'
"""

_TO_RETRY: Final = f"""
select q.id, q.lane, q.letter, q.fence, q.actor, q.login, q.reason,
       (select count(*) from acklast.redrive_letters l
        where l.lane = q.lane and l.key = q.key and l.released_at is not null) >= $2 as capped
from acklast.reconciliations q
where q.lane = any($1::text[]) and q.done_at is null and q.found is not null
order by q.lane, q.id limit {_MANY}
"""  # noqa: S608 - ours

# A redrive would refuse each of these: a person says what becomes of them.
_CAPPED: Final = """
update acklast.reconciliations set effect = 'unresolved', code = 'capped', done_at = clock_timestamp()
where id = any($1::bigint[]) and done_at is null
"""

_OVERTAKEN: Final = """
update acklast.reconciliations q set effect = 'superseded', done_at = clock_timestamp()
where q.lane = any($1::text[]) and q.done_at is null and q.found is not null and not exists (
    select from acklast.jobs j join acklast.dead_letters d on d.id = q.letter and d.closed_at is null
    where j.lane = q.lane and j.key = q.key and j.state = 'unresolved' and j.fence = q.fence
      and d.payload is not null
      and not exists (select from acklast.cancelled_runs c where c.run = j.run))
"""


class Questions:
    """The questions about the jobs of some lanes, on a connection of their own."""

    def __init__(self, address: Address, lanes: Sequence[str], most: int) -> None:
        """``most``: how often one job may be tried again."""
        self._most = most
        self._link = Link(address, {"jit": "off"})
        self._lanes = list(lanes)
        self._taking = asyncio.Lock()
        self._taken: set[int] = set()

    async def close(self) -> None:
        await self._link.close()

    async def waiting(self, session: int) -> dict[str, int]:
        """The lanes of which something is asked that nobody works on, and how much; it counts to a thousand.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        rows = await self._link.fetch(_WAITING, self._lanes, session, list(self._taken))
        return {row["lane"]: row["questions"] for row in rows}

    async def take(self, lane: str, session: int) -> Question | None:
        """The next question about a lane's jobs, for this session, until ``done_with``; None: there is none.

        Raises:
            LedgerUnavailable: it may or may not have been taken; then it is taken again.
        """
        async with self._taking:
            rows = await self._link.fetch(_TAKE, lane, session, list(self._taken))
            if not rows:
                return None
            question = Question(session=session, **dict(rows[0]))
            self._taken.add(question.id)
            return question

    def done_with(self, question: Question) -> None:
        """Nobody here works on it any more."""
        self._taken.discard(question.id)

    async def release(self, question: Question) -> None:
        """Leave a question to whoever comes next.

        Raises:
            LedgerUnavailable: it may or may not have been done; a repeat is safe.
        """
        await self._link.fetch(_RELEASE, question.id, question.session)

    async def supersede(self, question: Question) -> None:
        """Close one whose job is not any more what it was when somebody asked.

        Raises:
            LedgerUnavailable: it may or may not have been done; a repeat is safe.
        """
        await self._link.fetch(_TOO_LATE, question.id, question.session, None, "")

    async def subject(self, question: Question) -> Subject | None:
        """What it is about; None where the job is not what it was when somebody asked.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        rows = await self._link.fetch(_SUBJECT, question.letter, question.fence)
        return _subject(rows[0]) if rows else None

    async def answer(self, question: Question, answer: Answer) -> bool:
        """Put down what was found with what follows from it, in one commit; False: it was too late.

        Raises:
            LedgerUnavailable: it may or may not have been done; a repeat is safe.
        """
        buried = answer.buried
        code, detail = clean(answer.code, REASON_LIMIT), clean(answer.detail)
        told = (
            answer.found.value,
            code,
            detail,
            answer.effect.value,
            None if answer.result is None else storable_json(answer.result),
            answer.started_at,
            answer.ended_at,
            buried and clean(buried.reason, REASON_LIMIT),
            buried and clean(buried.detail),
            buried and buried.failure,
        )
        if await self._link.fetch(_ANSWER, question.id, question.session, *told):
            return True
        await self._link.fetch(_TOO_LATE, question.id, question.session, answer.found.value, code)
        return bool(await self._link.fetch(_ANSWERED, question.id, question.session))

    async def retry(self) -> None:
        """Have the jobs run again of which nothing has happened: a redrive for each who asked.

        Raises:
            LedgerUnavailable: some may or may not have been; a repeat is safe.
        """
        asked: dict[tuple[str, str, str, str], list[asyncpg.Record]] = defaultdict(list)
        found = await self._link.fetch(_TO_RETRY, self._lanes, self._most)
        if capped := [row["id"] for row in found if row["capped"]]:
            await self._link.fetch(_CAPPED, capped)
        for row in found:
            if row["capped"]:
                continue
            asked[row["lane"], row["actor"], row["login"], row["reason"]].append(row)
        for (lane, actor, login, reason), rows in asked.items():
            letters, fences = [row["letter"] for row in rows], [row["fence"] for row in rows]
            selection = {"by": "unresolved reconcile"}
            retrying = Retrying(lane, letters, fences, selection, actor, login, reason)
            await self._link.fetch(RETRIED, *retrying.arguments)
        if asked:
            await self._link.fetch(_OVERTAKEN, self._lanes)


def _subject(row: asyncpg.Record) -> Subject:
    found = dict(row)
    more = {name: found.pop(name) for name in ("fence", "rate_limited", "deadline", "stopped", "now")}
    return Subject(attempts=found.pop("spent"), letter=whole_of(found), **more)
