"""Nothing that comes over the wire raises, and whatever is said of it holds."""

from __future__ import annotations

import json
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from acklast_topology.contract import (
    Envelope,
    Malformed,
    RawMessage,
    Reason,
    digest,
    evidence,
    fingerprint,
    parse,
)
from acklast_topology.evidence import MAX_EVIDENCE_BYTES
from harness.messages import any_value, hostile_messages

content = st.tuples(st.none() | st.text(), st.text(), st.binary())


@given(hostile_messages)
def test_parse_never_raises_and_keeps_its_word(raw: RawMessage) -> None:
    match parse(raw):
        case Envelope() as job:
            assert 1 <= len(job.key.encode()) <= 255
            assert job.key.isprintable()
            assert "\0" not in f"{job.type}{job.run}{job.content_type}"
            assert all(
                t is None or t.tzinfo is not None for t in (job.deadline, job.not_before, job.published_at)
            )
            assert job.fingerprint == fingerprint(job.type, job.content_type, job.body)
        case Malformed(reason, detail):
            assert reason in Reason
            assert detail
            detail.encode()
            assert "\0" not in detail


@given(hostile_messages)
def test_evidence_is_json_that_postgres_can_hold(raw: RawMessage) -> None:
    found = evidence(raw)
    for part in (found.headers, found.properties):
        text = json.dumps(part, allow_nan=False, ensure_ascii=False)
        text.encode()
        # Without the backslashes that were in the message: those are escaped themselves.
        assert "\\u0000" not in text.replace("\\\\", "")
        assert len(text) < 2 * MAX_EVIDENCE_BYTES


@given(hostile_messages, st.text(), any_value)
def test_a_digest_survives_what_a_broker_adds(raw: RawMessage, route: str, value: object) -> None:
    again = RawMessage(
        **{
            **{f.name: getattr(raw, f.name) for f in fields(raw)},
            "redelivered": not raw.redelivered,
            "routing_key": route,
            "headers": {**raw.headers, "x-death": value},
        }
    )
    assert digest(again) == digest(raw)


@given(hostile_messages, st.binary(min_size=1))
def test_a_digest_tells_bodies_apart(raw: RawMessage, more: bytes) -> None:
    other = RawMessage(raw.body + more, headers=raw.headers)
    assert digest(other) != digest(RawMessage(raw.body, headers=raw.headers))


@given(content, content)
def test_fingerprints_are_equal_where_the_content_is(
    one: tuple[str | None, str, bytes], two: tuple[str | None, str, bytes]
) -> None:
    assert (fingerprint(*one) == fingerprint(*two)) == (one == two)
