"""Log lines as records."""

from __future__ import annotations

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
