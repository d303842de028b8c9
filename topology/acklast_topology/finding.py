"""What was found of one object of the plan on the broker, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Found(StrEnum):
    """How an object on the broker stands to the plan."""

    CREATED = "created"
    PRESENT = "present"
    MISSING = "missing"
    DIFFERS = "differs"
    """There, with another type or argument. What it has cannot be changed, only replaced."""
    REFUSED = "refused"
    """The broker did not let this user look or declare."""
    LEFT = "left"
    """Not in the plan any more, and jobs are in it."""
    MIGRATED = "migrated"
    """It was replaced, with all that it held."""
    REMOVED = "removed"
    EXTRA = "extra"
    """There, and nothing in the plan names it. A remark, not a fault."""
    UNSEEN = "unseen"
    """Not visible with what this user may do. A remark, not a fault."""


_FIT: Final = frozenset(
    {Found.CREATED, Found.PRESENT, Found.MIGRATED, Found.REMOVED, Found.EXTRA, Found.UNSEEN}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One object: ``kind`` is ``exchange``, ``queue``, ``binding`` or ``policy``.

    ``remedy`` is empty where nothing is to be done. ``messages`` is how many a queue holds, None where they
    were not counted. A policy has the name of what it is in force on.
    """

    kind: str
    name: str
    status: Found
    detail: str = ""
    remedy: str = ""
    messages: int | None = None

    @property
    def fit(self) -> bool:
        """Whether a daemon may start on it."""
        return self.status in _FIT


def missing(kind: str, name: str, detail: str = "") -> Finding:
    return Finding(
        kind,
        name,
        Found.MISSING,
        detail or f"the broker has no {kind} {name}",
        "Run `acklast topology apply` with a user that may configure it",
    )


def refused(kind: str, name: str, detail: str) -> Finding:
    return Finding(
        kind,
        name,
        Found.REFUSED,
        detail,
        f"Give the user permission on {kind} {name}, or let somebody who has it run `acklast topology apply`",
    )
