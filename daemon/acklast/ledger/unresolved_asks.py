"""What people want found out of unresolved jobs: questions for the daemons, and what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from acklast.ledger.operate import Operations, Operator
from acklast.ledger.unresolved_changes import HELD, Refusal, looked, sorted_out

# A question that is open already is joined.
_ASK: Final = (
    HELD  # noqa: S608 - ours
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
    found = await looked(operations, letters)
    fit, refused = sorted_out(letters, found, [one.refusal(None, barred=barred) for one in found])
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
