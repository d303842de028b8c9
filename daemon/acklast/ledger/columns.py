"""What a flush hands to its statement: arrays, one for each column of each kind of row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Column:
    """``once``: sent as one value where all rows have the same, as nearly all batches have one lane and type.

    Encoding its arrays costs a flush more than anything else that Python does with it.
    """

    name: str
    kind: str
    once: bool = True

    def read(self, number: int) -> str:
        """The value in the statement: of the row ``u``, or of all rows in parameter ``number``."""
        if not self.once:
            return f"u.{self.name}"
        array = f"${number}::{self.kind}[]"
        return f"case when cardinality({array}) = 1 then ({array})[1] else u.{self.name} end"

    def parameter(self, values: Sequence[Any]) -> Sequence[Any]:
        """The array to send. Rows beyond its end are NULL."""
        first = values[0]
        if not self.once or values.count(first) < len(values):
            return values
        return () if first is None else (first,)


@dataclass(frozen=True, slots=True)
class Rows:
    """Parameters that arrive as one array per column, and are rows again in the statement."""

    alias: str
    columns: tuple[Column, ...]

    def unnest(self, first: int) -> str:
        """The rows, with parameters from ``$first`` on."""
        columns = list(enumerate(self.columns, first))
        names = ", ".join(column.name for _, column in columns)
        arrays = ", ".join(f"${n}::{column.kind}[]" for n, column in columns)
        values = ", ".join(f"{column.read(n)} as {column.name}" for n, column in columns)
        source = f"unnest({arrays}) as u ({names})"
        return f"(select {values} from {source}) as {self.alias}"  # noqa: S608 - names of this module alone

    def parameters(self, rows: Sequence[tuple[Any, ...]]) -> list[Sequence[Any]]:
        """The arrays for these rows; none for no rows."""
        columns = zip(*rows, strict=True)
        return [column.parameter(values) for column, values in zip(self.columns, columns, strict=False)]


_JOB: Final = (
    Column("ticket", "bigint", once=False),
    Column("lane", "text"),
    Column("key", "text", once=False),
)
ASKED: Final = Rows(
    "a",
    (
        *_JOB,
        Column("fingerprint", "bytea", once=False),
        Column("type", "text"),
        Column("run", "text"),
        Column("published_at", "timestamptz", once=False),
        Column("deadline", "timestamptz"),
        Column("not_before", "timestamptz"),
        Column("priority", "smallint"),
    ),
)
KEPT: Final = Rows(
    "k",
    (
        *_JOB,
        Column("header", "bytea", once=False),
        Column("body", "bytea", once=False),
    ),
)
DONE: Final = Rows(
    "r",
    (
        *_JOB,
        Column("fence", "bigint"),
        Column("result", "text"),
        Column("started_at", "timestamptz", once=False),
        Column("effect_at", "timestamptz", once=False),
    ),
)
FOLLOW: Final = Rows(
    "p",
    (
        Column("ticket", "bigint", once=False),
        Column("number", "int", once=False),
        Column("job", "text", once=False),
        Column("payload", "bytea", once=False),
    ),
)
TOLD: Final = Rows(
    "r",
    (
        *_JOB,
        Column("fence", "bigint"),
        Column("new_state", "text"),
        Column("available_at", "timestamptz"),
        Column("unspent", "int"),
        Column("limited", "int"),
        Column("ambiguous", "boolean"),
        Column("reason", "text"),
        Column("started_at", "timestamptz", once=False),
        Column("effect_at", "timestamptz", once=False),
        Column("outcome", "text"),
        Column("outcome_reason", "text"),
        Column("detail", "text"),
        Column("letter", "text"),
        Column("payload", "bytea"),
    ),
)
SETTLED: Final = Rows("s", (*_JOB[1:], Column("fence", "bigint")))
ACKED: Final = Rows(
    "t",
    (
        Column("session", "bigint"),
        Column("low", "bigint", once=False),
        Column("high", "bigint", once=False),
    ),
)
