"""Where a message comes from, by W3C Trace Context: what can be read is, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from acklast.telemetry.traceparent import parent_of, trace_id

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("value", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what-a-later-version-adds", True),
        (f"00-{TRACE}-{SPAN}-01".encode(), True),
    ],
    ids=["sampled", "not sampled", "a flag that is not known", "a later version", "binary"],
)
def test_what_keeps_to_the_recommendation_is_read(value: Any, sampled: bool) -> None:
    parent = parent_of({"traceparent": value})
    assert parent is not None
    assert (parent.trace_id, parent.span_id, parent.sampled) == (TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        5,
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
        b"\xff\xfe",
    ],
    ids=repr,
)
def test_anything_else_is_no_parent(value: Any) -> None:
    assert parent_of({"traceparent": value}) is None
    assert trace_id({"traceparent": value}) is None
