"""What downstreams say of their quotas, in every form that is about."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.http.pace import PaceHint, pace_hint

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
SOON = int(NOW.timestamp()) + 30


def hint(**headers: str) -> PaceHint | None:
    return pace_hint({name.replace("_", "-"): text for name, text in headers.items()}, NOW)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        # The present draft, and what follows it.
        ({"RateLimit": '"default";r=50;t=30'}, PaceHint(50, 30)),
        ({"RateLimit": "default; r=50; t=30"}, PaceHint(50, 30)),
        (
            {"RateLimit": '"default";r=50;t=30', "RateLimit-Policy": '"default";q=100;w=60'},
            PaceHint(50, 30, 100, 60),
        ),
        # Without a reset the whole window is.
        ({"RateLimit": '"d";r=50', "RateLimit-Policy": '"d";q=100;w=60'}, PaceHint(50, 60, 100, 60)),
        # The tightest of several, whatever their order.
        ({"RateLimit": '"s";r=9;t=1, "day";r=100;t=36000'}, PaceHint(100, 36000)),
        ({"RateLimit": '"a,b;c";r=1;t=2'}, PaceHint(1, 2)),
        # Draft 7.
        ({"RateLimit": "limit=100, remaining=50, reset=5"}, PaceHint(50, 5, 100)),
        (
            {"RateLimit": "limit=100, remaining=0, reset=5", "RateLimit-Policy": "100;w=60"},
            PaceHint(0, 5, 100, 60),
        ),
        # The first drafts.
        (
            {"RateLimit-Limit": "100", "RateLimit-Remaining": "7", "RateLimit-Reset": "50"},
            PaceHint(7, 50, 100),
        ),
        (
            {
                "RateLimit-Limit": "10, 10;w=1",
                "RateLimit-Remaining": "7",
                "RateLimit-Reset": "1",
                "RateLimit-Policy": "10;w=1, 1000;w=3600",
            },
            PaceHint(7, 1, 10, 1),
        ),
        # What providers send.
        ({"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "50"}, PaceHint(7, 50)),
        ({"X-Rate-Limit-Remaining": "7", "X-Rate-Limit-Reset": str(SOON)}, PaceHint(7, 30)),
        ({"x-ratelimit-remaining": "7", "x-ratelimit-reset": f"{SOON}000"}, PaceHint(7, 30)),
        ({"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "2026-07-01T12:00:30Z"}, PaceHint(7, 30)),
        ({"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "2026-07-01T11:00:30"}, PaceHint(7, 0)),
        (
            {
                "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": str(SOON),
                "X-RateLimit-Reset-After": "29.5",
            },
            PaceHint(0, 29.5),
        ),
    ],
    ids=str,
)
def test_each_form_is_read(headers: dict[str, str], found: PaceHint) -> None:
    assert hint(**headers) == found


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Retry-After": "5"},
        {"RateLimit": ""},
        {"RateLimit": '"default"'},
        {"RateLimit": '"default";r=many;t=5'},
        {"RateLimit": '"default";r=-1;t=5'},
        {"RateLimit": '"default";r=1;t=-5'},
        {"RateLimit": '"default";r=1;t=inf'},
        {"RateLimit": '"default";r=1'},
        {"RateLimit": '"default;r=1;t=5'},
        {"RateLimit-Remaining": "5"},
        {"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "tomorrow"},
        {"X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "99999999999999999999"},
    ],
    ids=str,
)
def test_what_says_nothing_is_ignored(headers: dict[str, str]) -> None:
    assert hint(**headers) is None


def test_fields_that_repeat_are_one_list() -> None:
    class Repeating:
        def items(self) -> list[tuple[str, str]]:
            return [("RateLimit", '"s";r=9;t=1'), ("ratelimit", '"h";r=2;t=60')]

    assert pace_hint(Repeating(), NOW) == PaceHint(2, 60)


def test_the_pace_is_what_is_left_spread_until_the_reset() -> None:
    assert PaceHint(30, 60).pace_per_s == 0.5
    assert PaceHint(0, 60).pace_per_s == 0
    assert PaceHint(5, 0).pace_per_s == float("inf")


@given(
    st.dictionaries(
        st.sampled_from(["RateLimit", "RateLimit-Policy", "X-RateLimit-Remaining", "X-RateLimit-Reset"]),
        st.text('0123456789";=rtqw, .-\\einfa', max_size=40),
    )
)
def test_nothing_that_a_downstream_sends_can_break_the_reading(headers: dict[str, str]) -> None:
    found = pace_hint(headers, NOW)
    assert found is None or (found.remaining >= 0 and found.reset_s >= 0)
