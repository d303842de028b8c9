"""Log lines as records."""

from __future__ import annotations

from typing import Any

import pytest

from acklast.telemetry import wire
from acklast.telemetry.records import record_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_line_has_the_ids_of_its_trace() -> None:
    record = record_of({"event": "e", "trace_id": TRACE, "span_id": SPAN}, 1)
    assert (record.trace_id, record.span_id) == (TRACE, SPAN)


def test_what_a_handler_calls_so_and_is_no_id_costs_no_request() -> None:
    for other in ("order-17", TRACE.upper(), 17, None, TRACE + "00"):
        record = record_of({"event": "e", "trace_id": other, "span_id": other}, 1)
        assert (record.trace_id, record.span_id) == ("", "")
        wire.record(record)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (2**63 - 1, 2**63 - 1),
        (2**64 + 5, "18446744073709551621"),
        (-(2**63) - 1, "-9223372036854775809"),
        (10**5000, '"<int>"'),
        (True, True),
        ("x" * 65_536, "x" * 65_536),
        ("x" * 5_000_000, "x" * 65_536 + "..."),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        ({(1, 2): 3}, '"<dict>"'),
        (frozenset({1}), '"frozenset({1})"'),
    ],
    ids=["largest", "larger", "smaller", "endless", "flag", "long", "too long", "object", "odd key", "other"],
)
def test_a_value_of_a_handlers_is_told_as_far_as_it_can_be(value: Any, told: Any) -> None:
    record = record_of({"event": "e", "value": value}, 1)
    assert record.attributes == (("value", told),)
    wire.record(record)
