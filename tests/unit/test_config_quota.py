"""A quota is read as people write it, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.config import Quota, parse_quota

UNITS_S = {"s": 1, "min": 60, "h": 3600}


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("50 per 1 s", Quota(50, 1.0)),
        ("100 per 60 s", Quota(100, 60.0)),
        ("1 per 1 h", Quota(1, 3600.0)),
        ("30 per 5 min", Quota(30, 300.0)),
        ("30 per 0.5s", Quota(30, 0.5)),
        ("  50  per  s ", Quota(50, 1.0)),
    ],
)
def test_a_quota_is_read(text: str, quota: Quota) -> None:
    assert parse_quota(text) == quota


@given(st.integers(1, 10**9 - 1), st.integers(1, 10**6), st.sampled_from(sorted(UNITS_S)))
def test_what_is_written_is_what_is_meant(count: int, period: int, unit: str) -> None:
    quota = parse_quota(f"{count} per {period} {unit}")
    assert quota == Quota(count, float(period * UNITS_S[unit]))


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_a_quota_reads_its_own_text(count: int, period: int) -> None:
    quota = Quota(count, float(period))
    assert parse_quota(str(quota)) == quota


@pytest.mark.parametrize(
    "text",
    [
        "",
        "50",
        "50 per",
        "50/s",
        "-1 per 1 s",
        "5.5 per 1 s",
        "0 per 1 s",
        "5 per 0 s",
        "5 per 1 d",
        "\u0665 per 1 s",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must (be a quota|allow|have)"):
        parse_quota(text)


@given(st.text())
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        quota = parse_quota(text)
    except ValueError:
        return
    assert quota.count >= 1
    assert quota.period_s > 0
