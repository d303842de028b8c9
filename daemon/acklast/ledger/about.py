"""What a run is about: when it is to be finished, whose it is, its labels; and that it was cancelled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from acklast.errors import AcklastError, Exit

_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?", re.ASCII)
_LONGEST: Final = 200
_MOST_LABELS: Final = 32

RUN_CANCELLED: Final = "run_cancelled"
"""The reason of jobs that end because their run was cancelled."""


class RunDiffers(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """A run is promised more with another deadline, owner or label than it has."""

    exit = Exit.USAGE


class RunCancelled(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """A run is promised more after it was cancelled."""

    exit = Exit.USAGE

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run!r} is cancelled: none of its jobs would start", "Use another run's id")


@dataclass(frozen=True, slots=True)
class RunAbout:
    """What is known of a run besides its jobs; None and no label where nothing is said.

    ``deadline`` is when the run is to be finished: it is told, and stops nothing. ``labels`` are short texts
    by name. Raises ``ValueError`` for what cannot be kept.
    """

    deadline: datetime | None = None
    owner: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.deadline is not None and self.deadline.tzinfo is None:
            raise ValueError("the run's deadline has no offset")
        if self.owner is not None and not is_word(self.owner):
            raise ValueError(f"the run's owner must be 1 to {_LONGEST} printable characters")
        if len(self.labels) > _MOST_LABELS:
            raise ValueError(f"a run takes {_MOST_LABELS} labels at most")
        for name, value in self.labels.items():
            if not _LABEL.fullmatch(name):
                raise ValueError(f"label {name!r} must be 1 to 63 of A-Z, a-z, 0-9, '.', '_', '/' and '-'")
            if not is_word(value):
                raise ValueError(f"label {name!r} must have 1 to {_LONGEST} printable characters")


def is_word(text: str) -> bool:
    """Whether a text can be an owner or a label's value."""
    return 0 < len(text) <= _LONGEST and text.isprintable() and text == text.strip()


NOTHING: Final = RunAbout()


@dataclass(frozen=True, slots=True)
class Cancellation:
    """When a run was cancelled, by whom, and why."""

    at: datetime
    actor: str
    reason: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What is to be said of a run from now on, whatever was said before; what is not named stays.

    A name in ``clear`` (``deadline``, ``owner``) and a label without a value are said no more.
    """

    deadline: datetime | None = None
    owner: str | None = None
    labels: Mapping[str, str | None] = field(default_factory=dict)
    clear: frozenset[str] = frozenset()

    def applied(self, known: RunAbout) -> RunAbout:
        """
        Raises:
            ValueError: the result cannot be kept.
        """
        labels = {**known.labels, **self.labels}
        return RunAbout(
            None if "deadline" in self.clear else self.deadline or known.deadline,
            None if "owner" in self.clear else known.owner if self.owner is None else self.owner,
            {name: value for name, value in labels.items() if value is not None},
        )


def joined(run: str, known: RunAbout, more: RunAbout) -> RunAbout:
    """``known``, and what ``more`` adds to it.

    Raises:
        RunDiffers: ``more`` says another thing.
    """
    said = [
        ("deadline", known.deadline, more.deadline),
        ("owner", known.owner, more.owner),
        *((f"label {name}", known.labels.get(name), value) for name, value in more.labels.items()),
    ]
    for what, there, new in said:
        if there is not None and new is not None and there != new:
            raise RunDiffers(
                f"run {run!r} has {what} {_shown(there)}, not {_shown(new)}",
                "Leave it out, or change it first: acklast runs set",
            )
    labels = {**more.labels, **known.labels}
    return RunAbout(known.deadline or more.deadline, known.owner or more.owner, labels)


def _shown(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)
