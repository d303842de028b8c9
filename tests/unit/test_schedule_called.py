"""The rows of a callable, of whatever kind: page by page, going on behind a cursor, a bad one told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from acklast import Firing
from acklast.config.schedules import Schedule
from acklast.schedule.called import callable_pages
from acklast.schedule.rows import NoRow, Read, Row, Rows, RowsFailed

FIRING = Firing("digest", datetime(2026, 8, 3, tzinfo=UTC), "digest-1")


def schedule(cursor: str | None = "id", timeout_s: float = 30) -> Schedule:
    return Schedule(
        lane="mail", cron="0 7 * * *", rows="a:b", key="{run}:{id}", cursor=cursor, page_timeout_s=timeout_s
    )


async def read(function: Any, size: int = 2, after: Any = None, **more: Any) -> list[Read]:
    firing = Firing(FIRING.schedule, FIRING.scheduled_at, FIRING.run, after)
    return [one async for one in callable_pages(function, schedule(**more), firing, size)]


async def gather(pages: Rows, seen: list[Read]) -> None:
    """Put pages where they are kept whatever comes after them."""
    async for page in pages:
        seen.append(page)  # noqa: PERF401 - a comprehension would lose them all


def ids(pages: list[Read]) -> list[list[Any]]:
    return [
        [row.fields["id"] if isinstance(row, Row) else row.problem for row in page.rows] for page in pages
    ]


async def async_rows(firing: Firing) -> AsyncIterator[dict[str, Any]]:
    for number in range((firing.after or 0) + 1, 6):
        yield {"id": number}


def plain_rows(firing: Firing) -> Iterator[dict[str, Any]]:
    for number in range((firing.after or 0) + 1, 6):
        yield {"id": number}


def a_list(firing: Firing) -> list[dict[str, Any]]:
    return list(plain_rows(firing))


async def an_awaited_list(firing: Firing) -> list[dict[str, Any]]:
    return list(plain_rows(firing))


@pytest.mark.parametrize("function", [async_rows, plain_rows, a_list, an_awaited_list])
async def test_every_kind_of_callable_is_read_page_by_page(function: Any) -> None:
    pages = await read(function)
    assert ids(pages) == [[1, 2], [3, 4], [5]]
    assert [(page.cursor, page.last) for page in pages] == [("2", False), ("4", False), ("5", True)]
    assert ids(await read(function, after=4)) == [[5]]
    assert [(page.cursor, page.last) for page in await read(function, after=5)] == [("5", True)]


async def test_the_last_page_is_known_as_such_where_it_is_full() -> None:
    assert [page.last for page in await read(a_list, size=5)] == [True]


async def test_without_a_cursor_there_is_none_to_go_on_from() -> None:
    assert [page.cursor for page in await read(a_list, size=3, cursor=None)] == [None, None]


async def test_a_bad_row_is_told_and_the_rest_goes_on() -> None:
    def rows(_: Firing) -> list[Any]:
        return [{"id": 1}, "no row", {"id": 2, "of": object()}, {"other": 3}, {"id": float("nan")}, {"id": 4}]

    [page] = await read(rows, size=10)
    problems = [row.problem for row in page.rows if isinstance(row, NoRow)]
    assert [problem[:20] for problem in problems] == [
        "is a str, not a mapp",
        "is not JSON: a objec",
        "has no 'id', which i",
        "is not JSON: Out of ",
    ]
    assert [row.fields["id"] for row in page.rows if isinstance(row, Row)] == [1, 4]
    assert page.cursor == "4"


async def test_dates_and_the_like_become_text() -> None:
    values = {"id": UUID(int=1), "on": date(2026, 8, 3), "at": FIRING.scheduled_at, "sum": Decimal("1.20")}
    [page] = await read(lambda _: [values])
    [row] = page.rows
    assert isinstance(row, Row)
    assert row.body == (
        b'{"at":"2026-08-03T00:00:00+00:00","id":"00000000-0000-0000-0000-000000000001",'
        b'"on":"2026-08-03","sum":"1.20"}'
    )
    assert row.fields["on"] == "2026-08-03"


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_what_came_before_a_failure_is_a_page_of_its_own(kind: str) -> None:
    def plain(_: Firing) -> Iterator[dict[str, int]]:
        yield from ({"id": number} for number in range(1, 4))
        raise KeyError("price")

    async def of_async(firing: Firing) -> AsyncIterator[dict[str, int]]:
        for row in plain(firing):
            yield row

    seen = list[Read]()
    with pytest.raises(RowsFailed, match=r"KeyError at test_schedule_called\.py:\d+ plain"):
        await gather(callable_pages(plain if kind == "plain" else of_async, schedule(), FIRING, 2), seen)
    assert ids(seen) == [[1, 2], [3]]
    assert not any(page.last for page in seen)


async def test_a_callable_that_does_not_come_to_an_end_of_its_page_is_left() -> None:
    left = asyncio.Event()

    async def rows(_: Firing) -> AsyncIterator[dict[str, int]]:
        try:
            yield {"id": 1}
            await asyncio.Event().wait()
        finally:
            left.set()

    seen = list[Read]()
    with pytest.raises(RowsFailed, match="longer than 1 s"):
        await gather(callable_pages(rows, schedule(timeout_s=1), FIRING, 2), seen)
    assert ids(seen) == [[1]]
    assert left.is_set()
