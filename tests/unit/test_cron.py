"""When a schedule fires: every moment once, also where clocks are set; and what its runs are called."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.cron import Cron, RunTemplate, zone_of

NIGHTLY = "30 2 * * *"
HOURLY = "0 * * * *"


def cron(expression: str, zone: str = "UTC") -> Cron:
    return Cron.parse(expression, zone_of(zone))


def local(expression: str, zone: str, start: str, count: int) -> list[str]:
    """The next firings after a moment of the zone, as its clocks show them."""
    one = cron(expression, zone)
    after = datetime.fromisoformat(start).replace(tzinfo=one.zone)
    found = [one.local(moment).isoformat(timespec="minutes") for moment in islice(one.after(after), count)]
    return [text.removeprefix("2026-") for text in found]


# --- what is one ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "five fields"),
        ("@daily", "five fields"),
        ("0 0 7 * * MON", "five fields"),
        ("61 * * * *", "bad minute"),
        ("0 7 * * FUNDAY", "bad day-of-week"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("0 0 */31 2 MON#5", "a day that exists"),
    ],
)
def test_what_is_no_cron_expression_is_refused(expression: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cron(expression)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Europe/Berln", "perhaps 'Europe/Berlin'"),
        ("Europe", "a time zone"),
        ("", "a time zone"),
        ("../x", "zone"),
    ],
)
def test_what_is_no_time_zone_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        zone_of(name)


def test_the_zones_come_with_the_product() -> None:
    """A slim container has none of its own."""
    assert files("tzdata").joinpath("zoneinfo", "Europe", "Berlin").is_file()


# --- where clocks are set ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "start", "times"),
    [
        # Spring: 02:30 does not exist, and fires when the clock has been set.
        ("Europe/Berlin", "2026-03-28", ["03-28T02:30+01:00", "03-29T03:00+02:00", "03-30T02:30+02:00"]),
        ("Australia/Sydney", "2026-10-03", ["10-03T02:30+10:00", "10-04T03:00+11:00", "10-05T02:30+11:00"]),
        # Autumn: 02:30 comes twice, and fires at the first.
        ("Europe/Berlin", "2026-10-24", ["10-24T02:30+02:00", "10-25T02:30+02:00", "10-26T02:30+01:00"]),
        ("Australia/Sydney", "2026-04-04", ["04-04T02:30+11:00", "04-05T02:30+11:00", "04-06T02:30+10:00"]),
        # Midnight itself is what is skipped.
        ("Africa/Cairo", "2026-04-23T12:00", ["04-24T01:00+03:00", "04-25T02:30+03:00", "04-26T02:30+03:00"]),
    ],
)
def test_a_time_of_day_fires_once_a_day(zone: str, start: str, times: list[str]) -> None:
    expression = "30 0 * * *" if zone == "Africa/Cairo" else NIGHTLY
    expected = [text.replace("02:30", "00:30") for text in times] if zone == "Africa/Cairo" else times
    assert local(expression, zone, start, 3) == expected


def test_every_hour_is_every_hour_that_passes() -> None:
    spring = ["03-29T01:00+01:00", "03-29T03:00+02:00", "03-29T04:00+02:00"]
    assert local(HOURLY, "Europe/Berlin", "2026-03-29T00:30", 3) == spring
    autumn = ["10-25T02:00+02:00", "10-25T02:00+01:00", "10-25T03:00+01:00"]
    assert local(HOURLY, "Europe/Berlin", "2026-10-25T01:30", 3) == autumn


def test_a_firing_of_the_skipped_hour_is_not_beside_another_of_the_hour_after_it() -> None:
    times = ["03-29T03:00+02:00", "03-29T03:30+02:00", "03-30T02:00+02:00"]
    assert local("0,30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00", 3) == times


def test_who_begins_in_the_second_pass_of_an_hour_gets_nothing_of_the_first() -> None:
    one = cron(NIGHTLY, "Europe/Berlin")
    second_pass = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 there, for the second time
    assert one.local(next(one.after(second_pass))).isoformat() == "2026-10-26T02:30:00+01:00"


def test_what_the_clocks_do_to_a_firing_is_remarked() -> None:
    one = cron(NIGHTLY, "Europe/Berlin")
    assert one.remark(datetime(2026, 3, 29, 1, 0, tzinfo=UTC)) == "moved: the clock skips its time"
    assert one.remark(datetime(2026, 10, 25, 0, 30, tzinfo=UTC)) == "the clock shows it twice: the first time"
    assert one.remark(datetime(2026, 10, 26, 1, 30, tzinfo=UTC)) == ""
    hourly = cron(HOURLY, "Europe/Berlin")
    assert (
        hourly.remark(datetime(2026, 10, 25, 1, 0, tzinfo=UTC)) == "the clock shows it twice: the second time"
    )


CRONS = st.sampled_from(
    [NIGHTLY, HOURLY, "*/20 * * * *", "0,30 1-3 * * *", "15 0 * * SUN", "*/30 2 * * *", "0 3 1 * *"]
)
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "Australia/Sydney", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana"]
)
MOMENTS = st.integers(0, 2 * 366 * 1440).map(
    lambda n: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=n)
)


@given(CRONS, ZONES, MOMENTS, st.integers(0, 2000))
def test_where_one_begins_to_look_changes_nothing(
    expression: str, zone: str, start: datetime, later: int
) -> None:
    """Two schedulers that begin at different moments agree on every firing after both."""
    one, middle = cron(expression, zone), start + timedelta(minutes=later)
    end = middle + timedelta(days=3)
    assert list(one.between(middle, end)) == [at for at in one.between(start, end) if at > middle]


@given(CRONS, ZONES, MOMENTS)
def test_firings_only_go_forward(expression: str, zone: str, start: datetime) -> None:
    found = list(islice(cron(expression, zone).after(start), 30))
    assert found == sorted(set(found))
    assert found[0] > start


# --- runs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "run"),
    [
        ("0 7 * * MON", "digest-2026-W32"),
        ("0 7 1 * *", "digest-2026-08"),
        ("0 7 3 8 *", "digest-2026"),
        ("0 7 * * *", "digest-2026-08-03"),
        ("0 7 * * 1-5", "digest-2026-08-03"),
        ("0 7 1,3 * *", "digest-2026-08-03"),
        ("0 7,19 * * *", "digest-2026-08-03T0700+0200"),
        ("0 * * * *", "digest-2026-08-03T0700+0200"),
        ("*/60 7 * * *", "digest-2026-08-03T0700+0200"),
    ],
)
def test_a_run_is_called_by_the_period_of_its_cron(expression: str, run: str) -> None:
    one = cron(expression, "Europe/Berlin")
    template = RunTemplate.parse(f"digest-{one.period()}")
    at = datetime(2026, 8, 3, 7, tzinfo=ZoneInfo("Europe/Berlin")).astimezone(UTC)
    assert template.run(one, at) == run
    assert template.twice(one, at) is None


@pytest.mark.parametrize(
    ("expression", "text"),
    [("0 7 * * *", "digest-%G-W%V"), ("0 7 * * MON", "digest-%Y-%V-%u-%m-%j-%H-x%y"), ("0 7 * * *", "d")],
)
def test_two_firings_of_one_run_are_found(expression: str, text: str) -> None:
    one, now = cron(expression), datetime(2026, 8, 3, tzinfo=UTC)
    found = RunTemplate.parse(text).twice(one, now)
    if "%j" in text:
        assert found is None
    else:
        assert found is not None
        assert found.first < found.second


def test_the_hour_that_comes_twice_is_looked_at_however_far_it_is() -> None:
    """A thousand firings of every ten minutes are a week."""
    found = RunTemplate.parse("x-%Y-%m-%dT%H%M").twice(
        cron("*/10 * * * *", "Europe/Berlin"), datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert found is not None
    assert (found.run, found.second - found.first) == ("x-2026-10-25T0200", timedelta(hours=1))


@pytest.mark.parametrize("text", ["", " x", "x\n", "x" * 101, "x-%", "x-%A", "x-%-d", "x-%s"])
def test_what_is_no_template_of_a_run_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        RunTemplate.parse(text)


def test_a_percent_sign_may_be_in_a_run() -> None:
    one, at = cron("0 7 * * *"), datetime(2026, 8, 3, 7, tzinfo=UTC)
    assert RunTemplate.parse("100%%-%j").run(one, at) == "100%-215"
