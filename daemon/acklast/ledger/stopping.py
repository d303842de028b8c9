"""How jobs of a cancelled run are cancelled: those that are idle, and cannot have had their effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from acklast.ledger.api import Claim

# Guarded again, whoever asks: `runs cancel`, in pieces, or a flush that has found some. What is locked is
# left for next time.
STOP: Final = """
with job as (
    select j.lane, j.key, coalesce(j.run, s.run) as run
    from unnest($1::text[], $2::text[], $3::text[]) as s (lane, key, run)
         join acklast.jobs j on j.lane = s.lane and j.key = s.key
    where j.state in ('queued', 'waiting') and not j.ambiguous
      and exists (select from acklast.cancelled_runs c where c.run = coalesce(j.run, s.run))
    order by j.lane, j.key
    for no key update of j skip locked
),
stopped as (
    update acklast.jobs j
    set state = 'cancelled', fence = j.fence + 1, reason = 'run_cancelled', run = job.run,
        available_at = null, recorded_at = clock_timestamp()
    from job where j.lane = job.lane and j.key = job.key
    returning j.lane, j.key
),
freed as (
    delete from acklast.custody c using stopped s where c.lane = s.lane and c.key = s.key
)
select count(*) as jobs from stopped
"""


def stop_arguments(claims: Sequence[Claim]) -> tuple[list[Any], list[Any], list[Any]]:
    """What STOP needs to know of the jobs that these claims have asked for."""
    lanes, keys, runs = zip(*((one.lane, one.key, one.run) for one in claims), strict=True)
    return list(lanes), list(keys), list(runs)
