"""The rows that a callable yields, page by page."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Final
from uuid import UUID

from acklast.config.schedules import Schedule
from acklast.errors import AcklastError
from acklast.handlers.failure import described
from acklast.handlers.firing import Firing
from acklast.handlers.threads import Threads
from acklast.schedule.rows import NoRow, Read, Row, Rows, RowsFailed

_AT_ONCE: Final = 100
"""Rows of a plain iterator that one turn in a thread takes."""
_JSON: Final[dict[str, Any]] = {
    "ensure_ascii": False,
    "allow_nan": False,
    "separators": (",", ":"),
    "sort_keys": True,
}


async def callable_pages(
    function: Callable[[Firing], Any], schedule: Schedule, firing: Firing, page: int
) -> Rows:
    """Pages of what a schedule's callable yields: mappings, by a generator of either kind or as a list.

    What it yielded before it failed is a page of its own: a firing that is tried again goes on from there.

    Raises:
        RowsFailed: it raises something, or takes longer over a page than it may.
    """
    rows = _Paged(schedule.cursor, firing.after)
    source: _Source | None = None
    try:
        source = await _called(function, firing, schedule.page_timeout_s)
        while True:
            taken = await source.take(page + 1 - len(rows.held), schedule.page_timeout_s)
            read = rows.page(taken, page, failed=source.failure is not None)
            yield read
            if source.failure is not None:
                raise source.failure
            if read.last:
                return
    except TimeoutError:
        raise RowsFailed(f"the callable took longer than {schedule.page_timeout_s:g} s over a page") from None
    except (AcklastError, GeneratorExit):
        raise
    except Exception as error:
        raise RowsFailed(f"the callable fails: {described(error, _file_of(function))}") from error
    finally:
        if source is not None:
            await source.close()


def _file_of(function: Callable[[Firing], Any]) -> str:
    """Where it is written, to tell its own code from what it calls."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_filename if code is not None else ""


async def _called(function: Callable[[Firing], Any], firing: Firing, timeout_s: float) -> _Source:
    made = function(firing)
    if inspect.isawaitable(made):
        async with asyncio.timeout(timeout_s):
            made = await made
    return _Source(aiter(made) if hasattr(made, "__aiter__") else _in_threads(iter(made)), made)


async def _in_threads(rows: Iterator[Any]) -> AsyncIterator[Any]:
    """A plain iterator, read in a thread some rows at a time: it may wait for whatever it reads from."""
    threads = Threads(limit=1)
    try:
        while items := await asyncio.wrap_future(threads.submit(lambda: list(_some(rows)))):
            for item in items:
                if isinstance(item, _Raised):
                    raise item.error
                yield item
    finally:
        threads.close()


@dataclass(frozen=True, slots=True)
class _Raised:
    error: Exception


def _some(rows: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from islice(rows, _AT_ONCE)
    except Exception as error:
        yield _Raised(error)


class _Source:
    """Takes rows, and keeps what ended them early."""

    def __init__(self, rows: AsyncIterator[Any], made: Any) -> None:
        self._rows = rows
        self._made = made
        self.failure: Exception | None = None

    async def take(self, count: int, timeout_s: float) -> list[Any]:
        taken = list[Any]()
        try:
            async with asyncio.timeout(timeout_s):
                while len(taken) < count:
                    taken.append(await anext(self._rows))
        except StopAsyncIteration:
            pass
        except Exception as error:
            self.failure = error
        return taken

    async def close(self) -> None:
        for one in (self._rows, self._made):
            if hasattr(one, "aclose"):
                await one.aclose()
            elif hasattr(one, "close"):
                one.close()


class _Paged:
    """Cuts what is taken into pages: one item is read ahead, to know which page is the last."""

    def __init__(self, column: str | None, after: Any) -> None:
        self._column = column
        self._cursor = None if after is None else json.dumps(after)
        self._count = 0
        self.held = list[Any]()

    def page(self, taken: list[Any], size: int, *, failed: bool) -> Read:
        items = self.held + taken
        items, self.held = (items, []) if failed else (items[:size], items[size:])
        read = [self._row(item) for item in items]
        return Read(read, self._cursor, not (failed or self.held))

    def _row(self, item: Any) -> Row | NoRow:
        self._count += 1
        where = f"row {self._count}"
        if not isinstance(item, Mapping):
            return NoRow(where, f"is a {type(item).__name__}, not a mapping")
        try:
            body = json.dumps(dict(item), default=_plain, **_JSON).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return NoRow(where, f"is not JSON: {error}")
        if self._column is not None:
            if item.get(self._column) is None:
                return NoRow(where, f"has no {self._column!r}, which is the cursor")
            self._cursor = json.dumps(item[self._column], default=_plain)
        return Row(where, json.loads(body), body)


def _plain(value: Any) -> Any:
    match value:
        case date() | datetime():
            return value.isoformat()
        case UUID() | Decimal():
            return str(value)
        case _:
            raise TypeError(f"a {type(value).__name__} has no JSON form")
