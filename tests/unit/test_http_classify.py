"""What each answer means, by default and by configuration."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from acklast import errors
from acklast.decide import classify as classify_error
from acklast.handlers.context import Context
from acklast.http.classify import NO_RULES, StatusRules, classify, error_for, saw_up
from acklast.outcome import Done, Interrupted, Outcome, Permanent, RateLimited, Transient, Unknown

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


def outcome(status: int, rules: StatusRules = NO_RULES, **headers: str) -> Outcome:
    return classify(status, {name.replace("_", "-"): text for name, text in headers.items()}, rules, NOW)


def test_success_is_done() -> None:
    assert [outcome(status) for status in (200, 201, 204, 299)] == [
        Done({"status": status}) for status in (200, 201, 204, 299)
    ]


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504, 507, 520, 599])
def test_what_may_be_better_later_is_transient(status: int) -> None:
    assert outcome(status) == Transient(f"http_{status}")


@pytest.mark.parametrize("status", [301, 302, 304, 400, 401, 403, 404, 409, 410, 422, 451, 501, 505])
def test_what_will_not_be_better_is_permanent(status: int) -> None:
    assert outcome(status) == Permanent(f"http_{status}")


@pytest.mark.parametrize("status", [100, 600, 999])
def test_what_no_standard_knows_is_unknown(status: int) -> None:
    assert outcome(status) == Unknown(f"http_{status}")


def test_too_many_requests_waits_as_long_as_it_says() -> None:
    date = format_datetime(NOW + timedelta(seconds=90), usegmt=True)
    assert outcome(429) == RateLimited(None, "http_429")
    assert outcome(429, Retry_After="7") == RateLimited(7.0, "http_429")
    assert outcome(429, retry_after=date) == RateLimited(90.0, "http_429")
    assert outcome(429, Retry_After="soon") == RateLimited(None, "http_429")


def test_a_rate_limit_without_retry_after_waits_for_the_reset() -> None:
    assert outcome(429, RateLimit='"default";r=0;t=12') == RateLimited(12.0, "http_429")
    # Something is left: the refusal is not about this window.
    assert outcome(429, RateLimit='"default";r=5;t=12') == RateLimited(None, "http_429")
    assert outcome(429, Retry_After="3", RateLimit='"default";r=0;t=12') == RateLimited(3.0, "http_429")


def test_unavailable_is_a_rate_limit_only_where_it_says_when() -> None:
    assert outcome(503, Retry_After="5") == RateLimited(5.0, "http_503")
    assert outcome(503, Retry_After="later") == Transient("http_503")


def test_a_named_number_comes_before_a_named_class_and_that_before_the_defaults() -> None:
    rules = StatusRules.of({"4xx": "done", 404: "unknown", "5xx": "unknown"})
    assert outcome(404, rules) == Unknown("http_404")
    assert outcome(409, rules) == Done({"status": 409})
    assert outcome(408, rules) == Done({"status": 408})
    assert outcome(500, rules) == Unknown("http_500")
    assert outcome(302, rules) == Permanent("http_302")


def test_a_class_leaves_rate_limits_alone_and_a_number_does_not() -> None:
    rules = StatusRules.of({"4xx": "transient", "5xx": "unknown"})
    assert outcome(429, rules) == RateLimited(None, "http_429")
    assert outcome(503, rules, Retry_After="1") == RateLimited(1.0, "http_503")
    assert outcome(503, rules) == Unknown("http_503")
    assert outcome(429, StatusRules.of({429: "permanent"})) == Permanent("http_429")


@pytest.mark.parametrize(
    ("key", "meaning"), [("4x", "done"), ("600", "done"), ("abc", "done"), (409, "fine")]
)
def test_rules_that_mean_nothing_are_refused(key: int | str, meaning: str) -> None:
    with pytest.raises(ValueError, match=r"must be a status|Meaning"):
        StatusRules.of({key: meaning})


@pytest.mark.parametrize(
    "value",
    [RateLimited(7.0, "http_429"), Transient("a"), Permanent("b"), Unknown("c"), Interrupted("d")],
    ids=repr,
)
def test_the_exception_for_an_outcome_comes_to_that_outcome(value: Outcome) -> None:
    error = error_for(value)
    assert error is not None
    assert classify_error(error, now=NOW, retry_after_cap_s=60) == value


def test_done_is_no_exception() -> None:
    assert error_for(Done()) is None


@pytest.mark.parametrize(
    ("seen", "up"),
    [
        (Done(), True),
        (RateLimited(), True),
        (Permanent("http_404"), True),
        (Permanent("invalid_payload"), None),
        (Transient("http_500"), False),
        (Transient("http_408"), None),
        (Transient("not_sent:connect"), False),
        (Unknown("cut_off:reset"), False),
        (Unknown("timeout"), False),
        (Unknown("timeout_in_my_code"), None),
        (Unknown("exception:ValueError"), None),
        (Interrupted(), None),
    ],
    ids=repr,
)
def test_what_a_breaker_is_told(seen: Outcome, up: bool | None) -> None:
    assert saw_up(seen) is up


# --- the same for Python handlers ----------------------------------------------------------------------


class Httpx:
    def __init__(self, status_code: int, **headers: str) -> None:
        self.status_code = status_code
        self.headers = headers


class Aiohttp:
    def __init__(self, status: int, **headers: str) -> None:
        self.status = status
        self.headers = headers


@pytest.mark.parametrize("made", [Httpx, Aiohttp])
def test_a_handler_reads_a_response_as_a_lane_does(made: Any) -> None:
    ctx = Context("k", "lane")
    ctx.raise_for_status(made(204))
    with pytest.raises(errors.Permanent, match="http_404"):
        ctx.raise_for_status(made(404))
    with pytest.raises(errors.Transient, match="http_502"):
        ctx.raise_for_status(made(502))
    with pytest.raises(errors.RateLimited) as caught:
        ctx.raise_for_status(made(429, **{"Retry-After": "4"}))
    assert caught.value.retry_after == 4.0


def test_a_handler_may_give_a_status_another_meaning() -> None:
    ctx = Context("k", "lane")
    ctx.raise_for_status(Httpx(409), status={409: "done"})
    with pytest.raises(errors.Unknown):
        ctx.raise_for_status(Httpx(504), status={"5xx": "unknown"})


def test_the_pace_that_a_response_tells_is_kept_whatever_it_comes_to() -> None:
    ctx = Context("k", "lane")
    with pytest.raises(errors.Permanent):
        ctx.raise_for_status(Httpx(404, RateLimit='"default";r=3;t=10'))
    ctx.raise_for_status(Httpx(200))
    assert ctx.pace is not None
    assert (ctx.pace.remaining, ctx.pace.reset_s) == (3, 10.0)


def test_what_is_no_response_is_said_to_be_none() -> None:
    class Odd:
        headers: dict[str, str] = {}  # noqa: RUF012 - it stands for anybody's class

    with pytest.raises(TypeError, match="Odd is no response"):
        Context("k", "lane").raise_for_status(Odd())
