"""The event that a settled delivery comes to: all that logs, metrics and spans are made of, taken once."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from acklast.judge import Judged
from acklast.lane import Lane
from acklast.ledger.api import Fresh
from acklast.settle import Delivery
from acklast.telemetry.events import Settled
from acklast_topology.contract import Envelope, Malformed
from acklast_topology.message import priority_class


def event_of(
    lane: Lane,
    delivery: Delivery,
    envelope: Envelope | Malformed,
    disposition: str,
    acked: bool,
    claimed: Fresh | None = None,
    judged: Judged | None = None,
    *,
    reason: str | None = None,
) -> Settled:
    """What became of a delivery, now that it is settled."""
    now, raw = time.monotonic(), envelope.raw
    of_job = envelope if isinstance(envelope, Envelope) else None
    taken, entered = delivery.taken_at, delivery.entered_at
    claim, record = delivery.claimed_at, delivery.recorded_at
    ended, trace = judged.ended if judged else None, delivery.trace
    return Settled(
        disposition,
        lane.name,
        envelope.key,
        of_job.type if of_job else None,
        of_job.run if of_job else None,
        judged.outcome if judged else None,
        (judged.reason if judged else reason) or None,
        claimed.attempt if claimed else None,
        claimed.fence if claimed else None,
        claimed.ambiguous if claimed else False,
        judged.handler_s if judged else None,
        now - taken,
        acked,
        priority_class(raw.priority),
        _queued_s(of_job, now - taken) if claimed and ended is not None and _is_first(claimed) else None,
        entered - taken if entered is not None else None,
        claim - entered if claim is not None and entered is not None else None,
        record - ended if record is not None and ended is not None else None,
        now - ended if acked and ended is not None else None,
        trace.trace_id if trace is not None and (trace.exported or trace.parent) else None,
        trace if trace is not None and trace.exported else None,
    )


def _is_first(claimed: Fresh) -> bool:
    """Whether nothing has been tried before: what passed until then was waiting in line, and nothing else."""
    return claimed.attempt == 1 and not claimed.rate_limited and not claimed.ambiguous


def _queued_s(envelope: Envelope | None, age_s: float) -> float | None:
    """How long a job that was taken in ``age_s`` ago had waited by then, whatever clocks say."""
    if envelope is None or envelope.published_at is None:
        return None
    since = envelope.published_at
    if envelope.not_before is not None and envelope.not_before > since:
        since = envelope.not_before
    return max(0.0, (datetime.now(UTC) - since).total_seconds() - age_s)
