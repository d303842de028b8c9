"""What a callable is given that yields the rows of a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Firing:
    """One firing. ``scheduled_at`` is the time that it is for, in UTC, however late it is.

    ``after`` is the cursor of the last row whose job is promised, where an earlier try was interrupted: go on
    behind it. None at the first try, and where the schedule names no cursor: then yield all rows again.
    """

    schedule: str
    scheduled_at: datetime
    run: str
    after: Any = None
