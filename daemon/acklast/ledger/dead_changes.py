"""What people do to dead letters: each change is one commit with its entry in the audit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from acklast.ledger.audit import put_down
from acklast.ledger.operate import Operations, Operator


@dataclass(frozen=True, slots=True)
class Dropped:
    """What became of some letters.

    ``kept``: their jobs are not over, and they are the way back. ``missing``: they are not there, or somebody
    else is at work on them.
    """

    dropped: int = 0
    kept: int = 0
    missing: int = 0

    def __add__(self, other: Dropped) -> Dropped:
        return Dropped(self.dropped + other.dropped, self.kept + other.kept, self.missing + other.missing)


# It is the way back for its job.
_IS_OPEN: Final = """(d.fence is not null or d.closed_at is not null) and exists (
        select from acklast.jobs j
        where j.lane = d.lane and j.key = d.key and j.state in ('queued', 'claimed', 'waiting', 'unresolved')
    )"""

# The letter goes with its message. Which failure it was stays in the audit, an entry for each; the job and
# its attempts stay where they are. The detail is not told there: it is free text and may name people, and an
# entry is never taken back.
_DROP: Final = f"""
with held as materialized (
    select d.id, {_IS_OPEN} as open
    from acklast.dead_letters d where d.id = any($1::bigint[]) order by d.id for update of d skip locked
),
gone as (
    delete from acklast.dead_letters d using held h where d.id = h.id and not h.open
    returning d.id, d.lane, d.key, d.run, d.fence, d.type, d.reason, d.failure, d.attempts,
              d.first_failure_at, d.last_failure_at, d.seen, d.worker, d.version, d.trace_id,
              octet_length(d.payload) as payload_bytes, encode(sha256(d.payload), 'hex') as payload_sha256
),
told as (
    insert into acklast.audit (actor, action, lane, key, run, detail)
    select $2, 'dead.drop', g.lane, g.key, g.run,
           jsonb_build_object('letter', g.id::text, 'reason', $4::text, 'login', $3::text,
                              'role', session_user, 'was', to_jsonb(g) - 'id' - 'lane' - 'key' - 'run')
    from gone g order by g.id
)
select (select count(*) from gone)::int as dropped, (select count(*) from held where open)::int as kept
"""  # noqa: S608 - ours


async def drop(operations: Operations, letters: Sequence[int], reason: str, operator: Operator) -> Dropped:
    """Remove these letters for good, at most some hundred in one commit.

    Raises:
        LedgerUnavailable: it may or may not have been done; a repeat is safe.
    """
    async with operations.changing() as connection:
        [row] = await connection.fetch(_DROP, list(letters), operator.name, operator.login, reason)
    return Dropped(row["dropped"], row["kept"], len(set(letters)) - row["dropped"] - row["kept"])


_LOOK: Final = f"""
select count(*) filter (where not open)::int as dropped, count(*) filter (where open)::int as kept
from (select {_IS_OPEN} as open from acklast.dead_letters d where d.id = any($1::bigint[])) as held
"""  # noqa: S608 - ours


async def look(operations: Operations, letters: Sequence[int]) -> Dropped:
    """What ``drop`` would do with them.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    [row] = await operations.fetch(_LOOK, list(letters))
    return Dropped(row["dropped"], row["kept"], len(set(letters)) - row["dropped"] - row["kept"])


_WHOSE: Final = "select lane, key, run from acklast.dead_letters where id = $1 for key share"


async def note(operations: Operations, letter: int, text: str, operator: Operator) -> bool:
    """Say something of a letter; False where there is none with this id. What was said before stays.

    Raises:
        LedgerUnavailable: it may or may not have been done.
    """
    async with operations.changing() as connection:
        row = await connection.fetchrow(_WHOSE, letter)
        if row is None:
            return False
        effect = {"letter": str(letter), "note": text}
        await put_down(connection, operator, "dead.note", effect, **dict(row))
    return True
