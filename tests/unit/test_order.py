"""How a row becomes a job of the order, or is told as malformed by its line."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from acklast.cli.order import Order, Source, entry_of
from acklast.cli.rows import BadRow, Row
from acklast.template import KeyTemplate
from acklast_topology.items import Entry, NoJob
from acklast_topology.job import Job

DEADLINE = datetime(2040, 1, 1, tzinfo=UTC)
ORDER = Order("cleanup", "r1", KeyTemplate.parse("{run}:{id}"), "cleanup.v1", DEADLINE)


def row(line: int, id_: object, payload: bytes = b"{}") -> Row:
    return Row(line, {"id": id_}, payload, b"raw", 9)


def test_a_row_becomes_a_job_of_the_order() -> None:
    entry = entry_of(row(2, 7, b'{"id":7}'), ORDER)
    job = Job("cleanup", "r1:7", b'{"id":7}', type="cleanup.v1", run="r1", deadline=DEADLINE)
    assert entry == Entry(job, Source(2, b"raw", 9))


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (BadRow(3, "is not UTF-8"), "is not UTF-8"),
        (row(3, ""), "field 'id' of the key is empty"),
        (Row(3, {}, b"{}"), "field 'id' of the key is missing"),
        (row(3, "x" * 300), "at most 255 bytes"),
        (row(3, "a\nb"), "printable"),
        (row(3, "\ud800"), "UTF-8"),
    ],
)
def test_a_row_that_is_no_job_is_malformed(entry: Row | BadRow, told: str) -> None:
    made = entry_of(entry, ORDER)
    assert isinstance(made, NoJob)
    assert made.source.line == 3
    assert told in made.problem
