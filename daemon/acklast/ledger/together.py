"""Several readings of one command in one round trip, for a view that is looked at again and again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, cast

import asyncpg

from acklast.ledger.connect import Connection, unavailable_as_error
from acklast.ledger.operate import Operations

_PARAMETER: Final = re.compile(r"\$(\d+)")


class Row:
    """What the driver's record of such a row would be: by its column's name or place, iterated by values."""

    __slots__ = ("_places", "_values")

    def __init__(self, places: Mapping[str, int], values: Sequence[Any]) -> None:
        self._places = places
        self._values = values

    def __getitem__(self, at: Any) -> Any:
        return self._values[self._places[at] if isinstance(at, str) else at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def keys(self) -> Iterable[str]:
        """The columns' names."""
        return self._places.keys()

    def values(self) -> Iterable[Any]:
        return iter(self._values)

    def items(self) -> Iterable[tuple[str, Any]]:
        return zip(self._places, self._values, strict=True)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a column, where it is there."""
        place = self._places.get(name)
        return default if place is None else self._values[place]


class Together(Operations):
    """Reads by ``fetch`` as every command does, and learns what is asked: from the second ``refresh`` on all
    of it is one statement, and of one moment.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._columns: dict[tuple[Any, ...], tuple[str, ...]] = {}
        self._rows: dict[tuple[Any, ...], list[Any]] = {}

    async def refresh(self) -> None:
        """Ask again for all that was asked so far; ``fetch`` gives each once.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        self._rows.clear()
        if not self._columns:
            return
        sql, args = joined([*self._columns])
        with unavailable_as_error():
            row = await self._connection.fetchrow(sql, *args)
        assert row is not None
        for (asked, names), rows in zip(list(self._columns.items()), row.values(), strict=True):
            if any(len(one) != len(names) for one in rows):
                del self._columns[asked]  # a migration has added one: it is asked, and learnt, by itself
                continue
            places = {name: place for place, name in enumerate(names)}
            self._rows[asked] = [Row(places, tuple(one)) for one in rows]

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """
        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        asked = (sql, *args)
        if asked in self._rows:
            return cast("list[asyncpg.Record]", self._rows.pop(asked))
        with unavailable_as_error():
            statement = await self._connection.prepare(sql)
            self._columns[asked] = tuple(column.name for column in statement.get_attributes())
            return await statement.fetch(*args)


def joined(asked: Sequence[tuple[Any, ...]]) -> tuple[str, list[Any]]:
    """One statement with a column for each of these, which has its rows; and its parameters."""
    args: list[Any] = []
    parts = []
    for number, (sql, *own) in zip(count(), asked, strict=False):
        before = len(args)
        text = _PARAMETER.sub(lambda match, by=before: f"${int(match[1]) + by}", sql)  # type: ignore[misc]
        parts.append(f"array(select q from ({text}) as q) as part_{number}")  # noqa: S608 - ours
        args += own
    return f"select {', '.join(parts)}", args
