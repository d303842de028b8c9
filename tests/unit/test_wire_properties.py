"""The properties of a job encoded at once are those that the client library's own form has, byte for byte."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast_topology.job import Job
from acklast_topology.wire import Properties, encode_properties

AT = 1_900_000_000
SHORT = st.text(st.characters(codec="utf-8"), max_size=60)


@given(
    content_type=SHORT.filter(bool),
    headers=st.dictionaries(SHORT, SHORT | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.none()),
    message_id=SHORT.filter(bool),
    message_type=st.none() | SHORT.filter(bool),
    priority=st.none() | st.integers(0, 9),
)
def test_both_forms_are_the_same(
    content_type: str,
    headers: dict[str, object],
    message_id: str,
    message_type: str | None,
    priority: int | None,
) -> None:
    other = Properties(
        content_type=content_type,
        headers=headers,  # type: ignore[arg-type] # as our encoder takes them
        delivery_mode=2,
        priority=priority,
        message_id=message_id,
        timestamp=datetime.fromtimestamp(AT, UTC),
        message_type=message_type,
    )
    encoded = encode_properties(
        content_type=content_type,
        headers=headers,
        message_id=message_id,
        timestamp_s=AT,
        message_type=message_type,
        priority=priority,
    )
    assert encoded == other.marshal()


def test_a_text_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="255"):
        Job("a", "k", b"{}").encoded("m" * 256, AT)
