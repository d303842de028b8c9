"""What is said of a run wherever one is shown: how it stands, and what may be expected of it."""

from __future__ import annotations

from datetime import datetime

from acklast.cli.output import plain
from acklast.cli.proof import progress
from acklast.cli.spans import span
from acklast.ledger.api import RunView
from acklast.ledger.run_status import Status, left_s, per_success, rate_per_s, status
from acklast.ledger.runs import Oldest

_WORDS = {
    Status.AT_RISK: "at risk",
    Status.LATE: "late",
    Status.FINISHED_LATE: "finished late",
    Status.CANCELLING: "cancelled",
    Status.CANCELLED: "cancelled",
}


def forecast(view: RunView) -> dict[str, object]:
    """How a run stands and goes on, as JSON has it."""
    return {
        "status": status(view).value,
        "attempts_per_success": per_success(view),
        "rate_per_s": rate_per_s(view),
        "left_s": left_s(view),
        "ended_at": plain(view.ended_at),
    }


def status_line(view: RunView) -> str:
    """The same for people, on one line."""
    words = [progress(view)]
    if word := _WORDS.get(status(view)):
        words.append(word)
    if (rate := rate_per_s(view)) is not None and view.open:
        words.append(f"{rate:.3g}/s")
    if (left := left_s(view)) is not None:
        words.append(f"about {span(left)} left")
    if (per := per_success(view)) is not None:
        words.append(f"{per:.2f} attempts per success")
    return ", ".join(words)


def oldest_line(oldest: Oldest, now: datetime) -> str:
    """The oldest open job, for people."""
    age = span((now - oldest.since).total_seconds())
    return f"oldest open: {oldest.lane} {oldest.key}, {oldest.state} for {age}"
