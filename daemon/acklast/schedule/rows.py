"""The rows of a firing, as its query or its callable gives them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from acklast.config.schedules import Schedule
from acklast.errors import AcklastError
from acklast.handlers.firing import Firing
from acklast.ledger.firings import Claimed


class RowsFailed(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """The rows of a firing cannot be read."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "It is tried again; correct the query, the callable or what they read from")


@dataclass(frozen=True, slots=True)
class Row:
    """One row. ``body`` is its JSON, which is the job's payload; ``fields`` are what the key is made of."""

    where: str
    fields: Mapping[str, Any]
    body: bytes


@dataclass(frozen=True, slots=True)
class NoRow:
    """Something that is no row, and why."""

    where: str
    problem: str


@dataclass(frozen=True, slots=True)
class Read:
    """Some rows in order, where to go on behind them, and whether there are no more."""

    rows: Sequence[Row | NoRow]
    cursor: str | None
    last: bool


Rows: TypeAlias = AsyncGenerator[Read]


def firing_of(claimed: Claimed, schedule: Schedule) -> Firing:
    """What a query or a callable is told."""
    after: Any = claimed.cursor
    if after is not None and schedule.rows is not None:
        after = json.loads(after)
    return Firing(claimed.schedule, claimed.scheduled_at, claimed.run, after)
