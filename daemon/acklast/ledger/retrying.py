"""Unresolved jobs that are to run again: they become a redrive, which a daemon works on.

Their jobs stay unresolved until that releases them: until then somebody may still say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acklast.ledger.evidence import storable_json

RATE_PER_S: Final = 5.0
"""As a redrive has it where nothing is said."""

# The redrive whose letters somebody has decided on, and that may still release them.
BEING_RETRIED: Final = """exists (
    select from acklast.redrive_letters l join acklast.redrives v on v.id = l.redrive
    where l.lane = d.lane and l.key = d.key and l.state = 'planned' and v.decided
      and v.status in ('running', 'paused', 'asking', 'stopped'))"""

# Whatever may not be retried any more is skipped; so is what somebody else holds. The fence grows: whoever
# has read the job before this is too late, be it another person or the answer to a question.
RETRY: Final = f"""
with held as materialized (
    select d.id, d.lane, d.key, d.run, j.fence + 1 as fence, d.reason, d.failure, d.version
    from unnest($1::bigint[], $2::bigint[]) as w (letter, fence)
         join acklast.dead_letters d on d.id = w.letter
         join acklast.jobs j on j.lane = d.lane and j.key = d.key
    where d.lane = $3 and d.held and d.closed_at is null and d.fence = w.fence and d.payload is not null
      and j.state = 'unresolved' and j.fence = w.fence
      and not exists (select from acklast.cancelled_runs c where c.run = j.run) and not {BEING_RETRIED}
    order by d.key
    for no key update of j, d skip locked
),
redrive as (
    insert into acklast.redrives (lane, status, decided, selection, letters, actor, login, reason, steps,
                                  rate_per_s, tolerate, forced, started_at, step_at)
    select $3, 'running', true, $4::jsonb, count(*), $5, $6, $7, array[count(*)], $8, 1, $7,
           clock_timestamp(), clock_timestamp()
    from held having count(*) > 0 returning id
),
frozen as (
    insert into acklast.redrive_letters (redrive, position, letter, lane, key, run, fence, reason, failure,
                                         version)
    select r.id, row_number() over (order by h.key), h.id, h.lane, h.key, h.run, h.fence, h.reason, h.failure,
           h.version
    from redrive r cross join held h
),
moved as (
    update acklast.jobs j set fence = h.fence from held h where j.lane = h.lane and j.key = h.key
),
lettered as (
    update acklast.dead_letters d set fence = h.fence from held h where d.id = h.id
),
answered as (
    update acklast.reconciliations q
    set effect = case q.found when 'not_happened' then 'retry' else 'superseded' end,
        done_at = clock_timestamp()
    from held h where q.lane = h.lane and q.key = h.key and q.done_at is null
)
"""  # noqa: S608 - ours

RETRIED: Final = (
    RETRY
    + """
select r.id as redrive from redrive r
"""
)


@dataclass(frozen=True, slots=True)
class Retrying:
    """Letters of one lane, each with the fence of its job, and who has decided that they are to run again."""

    lane: str
    letters: Sequence[int]
    fences: Sequence[int]
    selection: Mapping[str, Any]
    actor: str
    login: str
    reason: str

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Of the statement."""
        return (
            list(self.letters),
            list(self.fences),
            self.lane,
            storable_json(self.selection),
            self.actor,
            self.login,
            self.reason,
            RATE_PER_S,
        )
