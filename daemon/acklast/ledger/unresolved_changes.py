"""What people decide of unresolved jobs, and what they want found out.

Each change is guarded by the job's fence, and makes it grow: of two operators, or an operator and the answer
to a question, one is in time, and the other is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from acklast.ledger.evidence import storable_json
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.retrying import BEING_RETRIED, RETRY, Retrying
from acklast.ledger.unresolved import IS_UNRESOLVED

BATCH: Final = 200
"""Jobs of one commit."""
RETRY_BATCH: Final = 5_000
"""Jobs of one redrive."""


class As(StrEnum):
    """What an unresolved job is to be."""

    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"


class Refusal(StrEnum):
    """Why nothing was done about a job."""

    NOT_UNRESOLVED = "not_unresolved"
    """There is none by that name, or somebody has decided already."""
    MOVED = "moved"
    """Somebody decides at this moment."""
    BEING_RETRIED = "being_retried"
    NO_CONTENT = "no_content"
    """Its message is gone."""
    RUN_CANCELLED = "run_cancelled"
    NO_RECONCILE = "no_reconcile"
    """An HTTP request cannot be asked whether it happened."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of some jobs. ``redrives``: what is to release those that run again."""

    changed: int = 0
    refused: Mapping[Refusal, int] = field(default_factory=dict)
    redrives: tuple[int, ...] = ()

    def __add__(self, other: Changed) -> Changed:
        refused = Counter(self.refused) + Counter(other.refused)
        return Changed(self.changed + other.changed, dict(refused), self.redrives + other.redrives)


_LOOK: Final = f"""
select d.id, d.lane, j.fence, {IS_UNRESOLVED} as unresolved, {BEING_RETRIED} as retried,
       d.payload is not null as whole,
       exists (select from acklast.cancelled_runs c where c.run = j.run) as stopped
from acklast.dead_letters d join acklast.jobs j on j.lane = d.lane and j.key = d.key
where d.id = any($1::bigint[]) order by d.lane, d.key
"""  # noqa: S608 - ours


@dataclass(frozen=True, slots=True)
class Looked:
    """A letter as it was a moment ago."""

    id: int
    lane: str
    fence: int
    unresolved: bool
    retried: bool
    whole: bool
    stopped: bool

    def refusal(self, how: As | None, barred: Sequence[str] = ()) -> Refusal | None:
        """Why it cannot be done; ``how`` is None for a question, which nobody answers in ``barred`` lanes."""
        if not self.unresolved:
            return Refusal.NOT_UNRESOLVED
        if self.retried:
            return Refusal.BEING_RETRIED
        if how is As.RETRY and self.stopped:
            return Refusal.RUN_CANCELLED
        if how is None and self.lane in barred:
            return Refusal.NO_RECONCILE
        if how in (None, As.RETRY) and not self.whole:
            return Refusal.NO_CONTENT
        return None


async def _looked(operations: Operations, letters: Sequence[int]) -> list[Looked]:
    return [Looked(**dict(row)) for row in await operations.fetch(_LOOK, list(letters))]


def _sorted(
    letters: Sequence[int], looked: Sequence[Looked], how: As | None, barred: Sequence[str] = ()
) -> tuple[list[Looked], Counter[Refusal]]:
    """Those about which it can be done, and how many about which it cannot, by why."""
    fit = [one for one in looked if one.refusal(how, barred) is None]
    refused = Counter(why for one in looked if (why := one.refusal(how, barred)) is not None)
    refused[Refusal.NOT_UNRESOLVED] += len(set(letters)) - len(looked)
    return fit, +refused


# What somebody else holds is skipped.
_HELD: Final = f"""
with held as materialized (
    select d.id, d.lane, d.key, d.run, j.fence + 1 as fence, d.reason
    from unnest($1::bigint[], $2::bigint[]) as w (letter, fence)
         join acklast.dead_letters d on d.id = w.letter
         join acklast.jobs j on j.lane = d.lane and j.key = d.key
    where {IS_UNRESOLVED} and j.fence = w.fence and not {BEING_RETRIED}
    order by d.lane, d.key
    for no key update of j, d skip locked
)"""  # noqa: S608 - ours

_END: Final = (
    _HELD  # noqa: S608 - ours
    + """,
ended as (
    update acklast.jobs j
    set state = $3, fence = h.fence, result = case when $3 = 'done' then $4::jsonb end,
        reason = case when $3 = 'done' then null else j.reason end, recorded_at = clock_timestamp()
    from held h where j.lane = h.lane and j.key = h.key
),
lettered as (
    update acklast.dead_letters d
    set fence = h.fence, held = $3 = 'done', closed_at = case when $3 = 'done' then clock_timestamp() end,
        closed_as = case when $3 = 'done' then 'done' end
    from held h where d.id = h.id
),
freed as (
    delete from acklast.custody c using held h where c.lane = h.lane and c.key = h.key
),
answered as (
    update acklast.reconciliations q set effect = 'superseded', done_at = clock_timestamp()
    from held h where q.lane = h.lane and q.key = h.key and q.done_at is null
),
told as (
    insert into acklast.audit (actor, action, lane, key, run, detail)
    select $5, 'unresolved.resolve', h.lane, h.key, h.run,
           jsonb_build_object('letter', h.id::text, 'as', $3, 'was', h.reason, 'fence', h.fence,
                              'result', $4::text is not null, 'reason', $7::text, 'login', $6::text, 'role',
                              session_user)
    from held h order by h.id
)
select id from held
"""
)


async def look(operations: Operations, letters: Sequence[int], how: As | None) -> Changed:
    """What ``resolve`` (or ``ask``) would do.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    fit, refused = _sorted(letters, await _looked(operations, letters), how)
    return Changed(len(fit), refused)


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody has decided. ``result`` is of a job that is done; ``selection``: what was meant."""

    how: As
    reason: str
    operator: Operator
    result: Any = None
    selection: Mapping[str, Any] = field(default_factory=dict)


async def resolve(operations: Operations, letters: Sequence[int], decision: Decision) -> Changed:
    """Do as somebody has decided, each job for itself; all that can be is one commit.

    Raises:
        LedgerUnavailable: it may or may not have been done; a repeat is safe.
    """
    fit, refused = _sorted(letters, await _looked(operations, letters), decision.how)
    if decision.how is As.RETRY:
        done, redrives = await _retry(operations, fit, decision)
    else:
        done, redrives = await _end(operations, fit, decision), ()
    refused[Refusal.MOVED] += len(fit) - done
    return Changed(done, +refused, redrives)


async def _end(operations: Operations, fit: Sequence[Looked], decision: Decision) -> int:
    result = None if decision.result is None else storable_json(decision.result)
    who = decision.operator
    async with operations.changing() as connection:
        ids, fences = [one.id for one in fit], [one.fence for one in fit]
        said = (decision.how.value, result, who.name, who.login, decision.reason)
        return len(await connection.fetch(_END, ids, fences, *said))


_RETRY: Final = (
    RETRY  # noqa: S608 - ours
    + """,
told as (
    insert into acklast.audit (actor, action, lane, key, run, detail)
    select $5, 'unresolved.resolve', h.lane, h.key, h.run,
           jsonb_build_object('letter', h.id::text, 'as', 'retry', 'was', h.reason, 'redrive', r.id, 'fence',
                              h.fence, 'reason', $7::text, 'login', $6::text, 'role', session_user)
    from redrive r cross join held h order by h.id
)
select r.id as redrive, (select count(*) from held)::int as jobs from redrive r
"""
)


async def _retry(
    operations: Operations, fit: Sequence[Looked], decision: Decision
) -> tuple[int, tuple[int, ...]]:
    """One redrive for each lane."""
    jobs, redrives = 0, list[int]()
    for lane in sorted({one.lane for one in fit}):
        of = [one for one in fit if one.lane == lane]
        retrying = Retrying(
            lane,
            [one.id for one in of],
            [one.fence for one in of],
            {**decision.selection, "by": "unresolved resolve"},
            decision.operator.name,
            decision.operator.login,
            decision.reason,
        )
        async with operations.changing() as connection:
            for row in await connection.fetch(_RETRY, *retrying.arguments):
                jobs += row["jobs"]
                redrives.append(row["redrive"])
    return jobs, tuple(redrives)


# A question that is open already is joined.
_ASK: Final = (
    _HELD  # noqa: S608 - ours
    + """,
asked as (
    insert into acklast.reconciliations (letter, lane, key, fence, actor, login, reason)
    select id, lane, key, fence - 1, $3, $4, $5 from held order by lane, key
    on conflict (lane, key) where done_at is null do nothing
    returning id, letter, lane, key
),
told as (
    insert into acklast.audit (actor, action, lane, key, run, detail)
    select $3, 'unresolved.reconcile', h.lane, h.key, h.run,
           jsonb_build_object('letter', h.id::text, 'question', a.id, 'was', h.reason, 'reason', $5::text,
                              'login', $4::text, 'role', session_user)
    from asked a join held h on h.id = a.letter order by a.id
)
select id, lane, true as new from asked
union all
select q.id, q.lane, false from held h join acklast.reconciliations q
    on q.lane = h.lane and q.key = h.key and q.done_at is null
"""
)


@dataclass(frozen=True, slots=True)
class Questions:
    """``ids``: of all that are to be answered; ``joined``: how many of them somebody else had asked."""

    ids: tuple[int, ...] = ()
    joined: int = 0
    refused: Mapping[Refusal, int] = field(default_factory=dict)
    lanes: frozenset[str] = frozenset()

    def __add__(self, other: Questions) -> Questions:
        refused = Counter(self.refused) + Counter(other.refused)
        lanes = self.lanes | other.lanes
        return Questions(self.ids + other.ids, self.joined + other.joined, dict(refused), lanes)


async def ask(
    operations: Operations, letters: Sequence[int], reason: str, operator: Operator, barred: Sequence[str]
) -> Questions:
    """Have a daemon ask whether the effects of these jobs have happened. ``barred`` lanes have no way to.

    Raises:
        LedgerUnavailable: it may or may not have been done; a repeat is safe.
    """
    fit, refused = _sorted(letters, await _looked(operations, letters), None, barred)
    ids, fences = [one.id for one in fit], [one.fence for one in fit]
    async with operations.changing() as connection:
        rows = await connection.fetch(_ASK, ids, fences, operator.name, operator.login, reason)
    refused[Refusal.MOVED] += len(fit) - len(rows)
    lanes = frozenset(row["lane"] for row in rows)
    return Questions(tuple(row["id"] for row in rows), sum(not row["new"] for row in rows), +refused, lanes)


_ANSWERS: Final = """
select effect, count(*)::int as jobs from acklast.reconciliations
where id = any($1::bigint[]) and done_at is not null group by effect
"""


async def answers(operations: Operations, questions: Sequence[int]) -> dict[str, int]:
    """How many of these questions are answered, by what became of the jobs.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    rows = await operations.fetch(_ANSWERS, list(questions))
    return {row["effect"]: row["jobs"] for row in rows}
