"""What a promised job is in the outbox: its columns, written once for whoever puts one in."""

from __future__ import annotations

from typing import Any, Final

from acklast.ledger.evidence import storable_json
from acklast_topology.job import Job

_KINDS: Final = {
    "lane": "text",
    "routing_suffix": "text",
    "key": "text",
    "type": "text",
    "content_type": "text",
    "run": "text",
    "priority": "smallint",
    "deadline": "timestamptz",
    "not_before": "timestamptz",
    "headers": "jsonb",
}
"""The columns of a job but for its payload, which is bytes and no JSON."""

COLUMNS: Final = (*_KINDS, "payload")
INTO: Final = f"acklast.outbox ({', '.join(COLUMNS)})"
"""The table and its columns, as ``VALUES`` fills them."""
VALUES: Final = f"{', '.join(f'f.{name}' for name in _KINDS)}, p.payload"
"""The values, of ``p (job, payload)`` joined with ``RECORD``."""
RECORD: Final = (
    f"jsonb_to_record(p.job::jsonb) as f ({', '.join(f'{name} {kind}' for name, kind in _KINDS.items())})"
)


def job_fields(job: Job) -> dict[str, Any]:
    """A job's columns but for its payload, ready for JSON."""
    times = {"deadline": job.deadline, "not_before": job.not_before}
    shown = {name: None if at is None else at.isoformat() for name, at in times.items()}
    return {name: getattr(job, name) for name in _KINDS} | shown


def values_of(job: Job) -> tuple[Any, ...]:
    """A job's ``COLUMNS``, as the driver takes them."""
    shown = {"headers": storable_json(job.headers)}
    return tuple(shown.get(name, getattr(job, name)) for name in COLUMNS)
