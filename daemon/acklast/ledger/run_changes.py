"""What people change of a run: each change is one commit with its entry in the audit."""

from __future__ import annotations

from datetime import UTC
from typing import Any, Final

from acklast.ledger.about import NOTHING, RunAbout, Settings
from acklast.ledger.audit import put_down
from acklast.ledger.connect import Connection
from acklast.ledger.evidence import storable_json
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.reading import about_of

# Whether anything is known of it: a row, or jobs that name it, be they still in the outbox.
_KNOWN: Final = """
select exists (select from acklast.runs where run = $1)
    or exists (select from acklast.jobs where run = $1)
    or exists (select from acklast.run_tallies where run = $1)
    or exists (select from acklast.outbox where run = $1)
"""

# A run that its jobs alone name has no manifest, and gets none.
_ROW: Final = "insert into acklast.runs (run, manifest) values ($1, null) on conflict (run) do nothing"
_LOCK: Final = "select deadline, owner, labels from acklast.runs where run = $1 for no key update"
_SET: Final = "update acklast.runs set deadline = $2, owner = $3, labels = $4::jsonb where run = $1"


async def is_known(connection: Connection, run: str) -> bool:
    """Whether the ledger has heard of the run."""
    return bool(await connection.fetchval(_KNOWN, run))


async def set_about(
    operations: Operations, run: str, settings: Settings, operator: Operator
) -> tuple[RunAbout, RunAbout] | None:
    """Say something else of a run: what was said before, and what is now; None where it is not known.

    Raises:
        LedgerUnavailable: it may or may not have been done; a repeat is safe.
        ValueError: the result cannot be kept.
    """
    async with operations.changing() as connection:
        if not await is_known(connection, run):
            return None
        await connection.execute(_ROW, run)
        [row] = await connection.fetch(_LOCK, run)
        before = about_of(row)
        after = settings.applied(before)
        if after != before:
            labels = storable_json(dict(after.labels))
            await connection.execute(_SET, run, after.deadline, after.owner, labels)
            effect = {"before": _shown(before), "after": _shown(after)}
            await put_down(connection, operator, "runs.set", effect, run=run)
    return before, after


def _shown(about: RunAbout) -> dict[str, Any]:
    if about == NOTHING:
        return {}
    deadline = about.deadline.astimezone(UTC).isoformat() if about.deadline else None
    return {"deadline": deadline, "owner": about.owner, "labels": dict(about.labels)}
