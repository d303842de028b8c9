"""What each role may do in the ledger's schema, table by table. ``roles`` makes it so.

Rights are in the words of GRANT, and are all that there is: a table without rights is out of reach. Whoever
adds a table, or a column where columns are named, says here who needs it; the tests ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rights:
    """Of one table or function, for each role; "" for none.

    ``publisher`` is an application that promises jobs (``acklast.enqueue``), and has none of any table.
    """

    daemon: str = ""
    operator: str = ""
    reader: str = ""
    publisher: str = ""


_ALL: Final = "select, insert, update, delete"
_READ: Final = "select"

# Neither who writes an entry says its number and its time, nor does anybody change one.
_TELL: Final = "select, insert (actor, action, lane, key, run, detail)"

# A letter without its message: neither payload nor headers nor properties.
_LETTER: Final = (
    "select (id, lane, key, fence, run, type, content_type, reason, detail, failure, exchange, routing_key,"
    " trace_id, attempts, first_failure_at, last_failure_at, seen, worker, version, digest, counted, held,"
    " closed_at, closed_as)"
)
_PROMISE: Final = (
    "select (id, lane, routing_suffix, key, type, content_type, run, priority, deadline, not_before,"
    " created_at, due_at, tries, error)"
)
_SCHEDULE: Final = (
    "select (name, lane, type, expression, timezone, content_type, enabled, last_due_at, next_due_at,"
    " created_at, decided_until, paused_at, paused_by, paused_reason)"
)

TABLES: Final[Mapping[str, Rights]] = {
    "migrations": Rights(_READ, _READ, _READ),
    # Of jobs and what belongs to them. Who locks a row needs the right to change some column of it.
    "jobs": Rights(
        _ALL,
        "select, insert (lane, key, state, fingerprint, type, run, deadline, priority, available_at),"
        " update (state, fence, reason, run, result, available_at, recorded_at)",
        _READ,
    ),
    "attempts": Rights("select, insert, update (version), delete", "select, update (detail)", _READ),
    "dead_letters": Rights(
        _ALL,
        "select, update (payload, headers, properties, detail, fence, held, closed_at, closed_as), delete",
        _LETTER,
    ),
    "dead_counts": Rights("select, insert, delete", _READ, _READ),
    "job_counts": Rights("select, insert, delete", _READ, _READ),
    "job_dues": Rights(_ALL, _READ, _READ),
    "job_counts_over": Rights(_ALL, _READ, _READ),
    "job_counting": Rights("select, insert", _READ, _READ),
    "custody": Rights(
        _ALL, "select, insert, update (sends, sent_at), delete", "select (lane, key, kept_at, sends, sent_at)"
    ),
    "outbox": Rights(_ALL, "select, insert, delete", _PROMISE),
    # Of runs and schedules.
    "runs": Rights("select, insert, update", "select, insert, update", _READ),
    "run_tallies": Rights("select, insert, update", _READ, _READ),
    "cancelled_runs": Rights(_READ, "select, insert", _READ),
    "schedules": Rights("select, insert, update", "select, insert, update", _SCHEDULE),
    "firings": Rights("select, insert, update", "select, insert, update", _READ),
    "firing_views": Rights(_READ, _READ, _READ),
    # Of the daemons among themselves.
    "workers": Rights(_ALL, "select, update (drain_asked_at, drain_by, drain_reason)", _READ),
    "settlements": Rights("select, insert, delete", _READ, _READ),
    "budgets": Rights("select, insert, update", _READ, _READ),
    "permits": Rights(_ALL, _READ, _READ),
    "lane_reports": Rights(_ALL, _READ, _READ),
    # Of people.
    "controls": Rights(_READ, "select, insert, delete", _READ),
    "redrives": Rights(_ALL, "select, insert, update", _READ),
    "redrive_letters": Rights(_ALL, "select, insert", _READ),
    "reconciliations": Rights("select, update, delete", "select, insert, update (effect, done_at)", _READ),
    "audit": Rights(_TELL, _TELL, _READ),
}

_PROMISING: Final = Rights(daemon="execute", operator="execute", publisher="execute")

FUNCTIONS: Final[Mapping[str, Rights]] = {
    "enqueue": _PROMISING,
    "enqueue_raw": _PROMISING,
    "job_priority": Rights(daemon="execute"),
    "job_due": Rights(daemon="execute"),
    "letter_bytes": Rights(daemon="execute", operator="execute", reader="execute"),
}
"""By name. What triggers call needs no right."""

NAMES: Final = ("daemon", "operator", "reader", "publisher")
"""The roles, without their prefix."""
