"""One letter of a redrive, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final


@dataclass(frozen=True, slots=True)
class Trial:
    """One letter of a redrive, in the order in which they are tried, and what came of it.

    ``reason``, ``failure`` and ``version`` are of the letter as it was frozen, ``new_*`` of what its job came
    to when it was tried again.
    """

    redrive: int
    position: int
    letter: int
    lane: str
    key: str
    run: str | None
    reason: str
    failure: str
    version: str
    state: str
    refusal: str | None
    """Why it was not tried."""
    released_at: datetime | None
    sent_at: datetime | None
    settled_at: datetime | None
    outcome: str | None
    new_reason: str | None
    new_failure: str | None
    new_version: str | None


COLUMNS: Final = """r.redrive, r.position, r.letter, r.lane, r.key, r.run, r.reason, r.failure, r.version,
       r.state, r.refusal, r.released_at, r.sent_at, r.settled_at, r.outcome, r.new_reason, r.new_failure,
       r.new_version"""
OF_JOB: Final = f"""
select {COLUMNS} from acklast.redrive_letters r
where r.lane = $1 and r.key = $2 order by r.redrive, r.position
"""  # noqa: S608 - ours
