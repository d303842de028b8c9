"""Deadline, not-before and the publisher's timestamp."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from acklast_topology.contract import RawMessage, Reason
from harness.messages import bad, good

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)
REASONS = {"deadline": Reason.INVALID_DEADLINE, "not-before": Reason.INVALID_NOT_BEFORE}
HEADERS = sorted(REASONS)


def message(header: str, value: Any) -> RawMessage:
    return RawMessage(b"", headers={"job-key": "k", header: value})


def moment(header: str, value: Any) -> datetime | None:
    job = good(message(header, value))
    return job.deadline if header == "deadline" else job.not_before


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(
    "value",
    [
        "2025-06-01T12:00:00Z",
        "2025-06-01t12:00:00z",
        "2025-06-01 12:00:00+00:00",
        "2025-06-01T14:00:00+02:00",
        "2025-06-01T12:00:00.000000000Z",
        b"2025-06-01T12:00:00Z",
        NOON,
        NOON.astimezone(timezone(timedelta(hours=-7))),
    ],
)
def test_times_with_an_offset(header: str, value: Any) -> None:
    read = moment(header, value)
    assert read == NOON
    assert read.tzinfo is UTC


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(
    "value",
    [
        "2025-06-01T12:00:00",  # naive
        NOON.replace(tzinfo=None),
        "2025-06-01",
        "20250601T120000Z",
        "2025-W22-7T12:00:00Z",
        "2025-02-30T12:00:00Z",
        "2025-06-01T25:00:00Z",
        "2025-06-01T12:00:00+99:00",
        "0001-01-01T00:00:00+14:00",  # before the first year in UTC
        "9999-12-31T23:59:59-14:00",
        "٢٠٢٥-06-01T12:00:00Z",  # digits, though not ASCII
        "tomorrow",
        "",
        " 2025-06-01T12:00:00Z",
        1748779200,
        b"\xff",
        [],
    ],
)
def test_other_times(header: str, value: Any) -> None:
    broken = bad(message(header, value))
    assert (broken.reason, broken.key) == (REASONS[header], "k")


@pytest.mark.parametrize(
    "value",
    [NOON, NOON.replace(tzinfo=None), int(NOON.timestamp()), NOON.timestamp(), int(NOON.timestamp()) * 1000],
)
def test_a_timestamp_in_seconds_or_milliseconds(value: Any) -> None:
    assert good(RawMessage(b"", message_id="k", timestamp=value)).published_at == NOON


@pytest.mark.parametrize(
    "value", [None, True, 2**63, -(2**63), 10**400, float("nan"), float("inf"), 1e300, "2025-06-01T12:00:00Z"]
)
def test_any_other_timestamp_is_ignored(value: Any) -> None:
    assert good(RawMessage(b"", message_id="k", timestamp=value)).published_at is None
