"""Contract v1: what is a job, and why the rest is a dead letter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acklast_topology.contract import Malformed, RawMessage, Reason, fingerprint, parse
from harness.messages import bad, good

LONGEST = "k" * 255


def message(
    body: bytes = b"{}", key: Any = "k-1", headers: dict[Any, Any] | None = None, **more: Any
) -> RawMessage:
    return RawMessage(body=body, headers={"job-key": key, **(headers or {})}, **more)


def test_a_plain_job() -> None:
    raw = message(b'{"a":1}', type="rent.reminder.v1", headers={"run": "2025-06"}, message_id="attempt-7")
    job = good(raw)
    assert (job.key, job.type, job.body, job.run) == ("k-1", "rent.reminder.v1", b'{"a":1}', "2025-06")
    assert (job.content_type, job.deadline, job.not_before) == ("application/json", None, None)
    assert job.raw is raw


def test_the_message_id_is_the_key_where_no_header_is() -> None:
    assert good(RawMessage(b"", message_id="m-1")).key == "m-1"


def test_a_null_header_counts_as_absent() -> None:
    headers = {"job-key": None, "run": None, "deadline": None, "not-before": None}
    job = good(RawMessage(b"", message_id="m-1", headers=headers))
    assert (job.key, job.run, job.deadline, job.not_before) == ("m-1", None, None, None)


@pytest.mark.parametrize(
    "key", ["k", LONGEST, "ä" * 127, "a b", "2025-06:4711", b"as-bytes", bytearray(b"too")]
)
def test_good_keys(key: Any) -> None:
    assert good(message(key=key)).key == (key if isinstance(key, str) else key.decode())


@pytest.mark.parametrize(
    "key",
    [
        "",
        LONGEST + "k",
        "ä" * 128,
        "a\0b",
        "a\nb",
        "\u200b",
        "\ud800",
        b"\xff",
        4711,
        1.5,
        True,
        [],
        {"k": 1},
    ],
)
def test_bad_keys(key: Any) -> None:
    broken = bad(message(key=key))
    assert (broken.reason, broken.key) == (Reason.INVALID_KEY, None)


@pytest.mark.parametrize("message_id", [None, ""])
def test_no_key_at_all(message_id: str | None) -> None:
    broken = bad(RawMessage(b"", message_id=message_id))
    assert broken.reason is Reason.MISSING_KEY
    assert "job-key" in broken.detail


def test_a_bad_message_id_is_an_invalid_key() -> None:
    assert bad(RawMessage(b"", message_id="a\tb")).reason is Reason.INVALID_KEY


@pytest.mark.parametrize(
    "name",
    [
        "content_type",
        "content_encoding",
        "message_id",
        "type",
        "correlation_id",
        "reply_to",
        "user_id",
        "app_id",
    ],
)
def test_a_property_that_is_not_utf8_is_undecodable(name: str) -> None:
    properties: dict[str, Any] = {name: b"\xff"}
    broken = bad(message(**properties))
    assert broken.reason is Reason.UNDECODABLE
    assert name in broken.detail


@pytest.mark.parametrize("name", [b"\xff", b"ok", None, 7])
def test_a_header_name_that_is_not_text_is_undecodable(name: Any) -> None:
    assert bad(message(headers={name: 1})).reason is Reason.UNDECODABLE


@pytest.mark.parametrize("run", ["", "r" * 256, "a\0", 7, b"\xff", "\n"])
def test_bad_runs(run: Any) -> None:
    broken = bad(message(headers={"run": run}))
    assert (broken.reason, broken.key) == (Reason.INVALID_RUN, "k-1")


@pytest.mark.parametrize("type_", ["a\0b", "t" * 256, "\ud800"])
def test_bad_types(type_: str) -> None:
    broken = bad(message(type=type_))
    assert (broken.reason, broken.key) == (Reason.INVALID_TYPE, "k-1")


@pytest.mark.parametrize("type_", [None, ""])
def test_no_type(type_: str | None) -> None:
    assert good(message(type=type_)).type is None


@pytest.mark.parametrize("encoding", [None, "", "identity", "utf-8", "UTF-8"])
def test_plain_encodings(encoding: str | None) -> None:
    assert good(message(content_encoding=encoding)).body == b"{}"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "latin-1"])
def test_other_encodings_are_refused(encoding: str) -> None:
    assert bad(message(content_encoding=encoding)).reason is Reason.INVALID_PAYLOAD


@pytest.mark.parametrize("content_type", ["a\0b", "c" * 256, "\ud800"])
def test_bad_content_types(content_type: str) -> None:
    assert bad(message(content_type=content_type)).reason is Reason.INVALID_PAYLOAD


def test_other_content_types_pass() -> None:
    job = good(message(b"\xff\x00", content_type="application/octet-stream"))
    assert (job.content_type, job.body) == ("application/octet-stream", b"\xff\x00")


def test_a_long_value_is_not_repeated_in_the_detail() -> None:
    broken = parse(message(key="\n" * 100_000))
    assert isinstance(broken, Malformed)
    assert len(broken.detail) < 500


def test_a_repeat_has_the_same_fingerprint() -> None:
    one = message(b"1", type="t", message_id="a", headers={"traceparent": "x"})
    two = message(b"1", type="t", message_id="b", content_type="application/json", redelivered=True)
    assert good(one).fingerprint == good(two).fingerprint == fingerprint("t", "application/json", b"1")


def test_another_content_has_another_fingerprint() -> None:
    variants = [
        message(b"1"),
        message(b"2"),
        message(b"1", type="t"),
        message(b"1", content_type="text/plain"),
    ]
    assert len({good(variant).fingerprint for variant in variants}) == len(variants)


def test_no_shift_between_the_parts_gives_the_same_fingerprint() -> None:
    parts: list[tuple[str | None, str, bytes]] = [
        (None, "ab", b"c"),
        ("", "ab", b"c"),
        ("a", "b", b"c"),
        ("ab", "", b"c"),
        ("a", "bc", b""),
        ("a", "", b"bc"),
        ("abc", "", b""),
    ]
    assert len({fingerprint(*part) for part in parts}) == len(parts)


DEEP: Any = None
for _ in range(2000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "headers",
    [
        {"h": "x" * 65_536},
        {"h": "ä" * 32_768},
        {"h": b"\xff" * 65_536},
        {"n" * 200 + str(n): None for n in range(330)},
        {"h": {"deep": ["x" * 65_536]}},
        {"h": DEEP},
    ],
    ids=["text", "umlauts", "binary", "names", "nested", "too deep"],
)
def test_headers_that_a_retry_could_not_carry(headers: dict[str, Any]) -> None:
    broken = bad(message(headers=headers))
    assert (broken.reason, broken.key) == (Reason.INVALID_HEADERS, "k-1")


def test_large_headers_that_a_retry_can_carry() -> None:
    assert good(message(headers={"h": "ä" * 30_000, "n": {"deep": [1, None]}})).key == "k-1"


def test_what_the_broker_adds_does_not_count() -> None:
    assert good(message(headers={"x-death": [{"queue": "q" * 70_000}], "x-opt": DEEP})).key == "k-1"


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained_to_publishers(reason: Reason) -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "contract.md"
    explained = page.read_text(encoding="utf-8").partition("## Reasons")[2].partition("## ")[0]
    assert f"`{reason}`" in explained
