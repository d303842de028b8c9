"""What a flush hands to its statement: arrays, one for each column of each kind of row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rows:
    """Parameters that arrive as one array per column, and are rows again in the statement."""

    alias: str
    columns: tuple[tuple[str, str], ...]

    def unnest(self, first: int) -> str:
        """The rows, with parameters from ``$first`` on."""
        names = ", ".join(name for name, _ in self.columns)
        arrays = (f"${n}::{kind}[]" for n, (_, kind) in enumerate(self.columns, first))
        return f"unnest({', '.join(arrays)}) as {self.alias} ({names})"


_JOB: Final = (("lane", "text"), ("key", "text"))
ASKED: Final = Rows(
    "a",
    (
        ("ticket", "bigint"),
        *_JOB,
        ("fingerprint", "bytea"),
        ("type", "text"),
        ("run", "text"),
        ("published_at", "timestamptz"),
        ("deadline", "timestamptz"),
        ("not_before", "timestamptz"),
    ),
)
DONE: Final = Rows(
    "r",
    (
        ("ticket", "bigint"),
        *_JOB,
        ("fence", "bigint"),
        ("result", "text"),
        ("started_at", "timestamptz"),
        ("effect_at", "timestamptz"),
    ),
)
TOLD: Final = Rows(
    "r",
    (
        ("ticket", "bigint"),
        *_JOB,
        ("fence", "bigint"),
        ("new_state", "text"),
        ("available_at", "timestamptz"),
        ("unspent", "int"),
        ("limited", "int"),
        ("ambiguous", "boolean"),
        ("reason", "text"),
        ("started_at", "timestamptz"),
        ("effect_at", "timestamptz"),
        ("outcome", "text"),
        ("outcome_reason", "text"),
        ("detail", "text"),
        ("letter", "text"),
        ("payload", "bytea"),
    ),
)
SETTLED: Final = Rows("s", (*_JOB, ("fence", "bigint")))
