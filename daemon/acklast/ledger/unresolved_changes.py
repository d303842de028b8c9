"""What people decide of unresolved jobs.

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
    CAPPED = "capped"
    """It was tried again as often as a job may be."""
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
       exists (select from acklast.cancelled_runs c where c.run = j.run) as stopped,
       (select count(*) from acklast.redrive_letters l
        where l.lane = d.lane and l.key = d.key and l.released_at is not null)::int as tries
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
    tries: int

    def refusal(self, how: As | None, most: int = 0, barred: Sequence[str] = ()) -> Refusal | None:
        """Why it cannot be done; ``how`` is None for a question, which nobody answers in ``barred`` lanes.

        ``most``: how often a job may be tried again.
        """
        if not self.unresolved:
            return Refusal.NOT_UNRESOLVED
        if self.retried:
            return Refusal.BEING_RETRIED
        if how is As.RETRY and self.stopped:
            return Refusal.RUN_CANCELLED
        if how is As.RETRY and self.tries >= most:
            return Refusal.CAPPED
        if how is None and self.lane in barred:
            return Refusal.NO_RECONCILE
        if how in (None, As.RETRY) and not self.whole:
            return Refusal.NO_CONTENT
        return None


async def looked(operations: Operations, letters: Sequence[int]) -> list[Looked]:
    """These letters as they are now.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    return [Looked(**dict(row)) for row in await operations.fetch(_LOOK, list(letters))]


def sorted_out(
    letters: Sequence[int], found: Sequence[Looked], whys: Sequence[Refusal | None]
) -> tuple[list[Looked], Counter[Refusal]]:
    """Those about which it can be done, and how many about which it cannot, by why."""
    fit = [one for one, why in zip(found, whys, strict=True) if why is None]
    refused = Counter(why for why in whys if why is not None)
    refused[Refusal.NOT_UNRESOLVED] += len(set(letters)) - len(found)
    return fit, +refused


# What somebody else holds is skipped.
HELD: Final = f"""
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
    HELD  # noqa: S608 - ours
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


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody has decided. ``result`` is of a job that is done; ``selection``: what was meant.

    ``most``: how often a job may be tried again.
    """

    how: As
    reason: str
    operator: Operator
    most: int
    result: Any = None
    selection: Mapping[str, Any] = field(default_factory=dict)


async def look(operations: Operations, letters: Sequence[int], decision: Decision) -> Changed:
    """What ``resolve`` would do.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    fit, refused = await _fit(operations, letters, decision)
    return Changed(len(fit), refused)


async def _fit(
    operations: Operations, letters: Sequence[int], decision: Decision
) -> tuple[list[Looked], Counter[Refusal]]:
    found = await looked(operations, letters)
    return sorted_out(letters, found, [one.refusal(decision.how, decision.most) for one in found])


async def resolve(operations: Operations, letters: Sequence[int], decision: Decision) -> Changed:
    """Do as somebody has decided, each job for itself; all that can be is one commit.

    Raises:
        LedgerUnavailable: it may or may not have been done; a repeat is safe.
    """
    fit, refused = await _fit(operations, letters, decision)
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
