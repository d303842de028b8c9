"""A schedule in the configuration: complete, checked, and no secret in what is said of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from acklast.config.schedules import CatchUp, Schedule, insist_on_runs
from acklast.errors import ConfigError
from harness.configs import GOOD, complaint, read

ONE = f"""{GOOD}
[schedules.weekly-digest]
lane = "cleanup"
cron = "0 7 * * MON"
sql = "select id from accounts"
key = "{{run}}:{{id}}"
"""
AT = datetime(2026, 8, 3, 7, tzinfo=UTC)


def schedule(tmp_path: Path, more: str = "", env: dict[str, str] | None = None) -> Schedule:
    return read(tmp_path, ONE + more, env).schedules["weekly-digest"]


def test_defaults_are_complete(tmp_path: Path) -> None:
    one = schedule(tmp_path)
    assert (one.time_zone, one.enabled, one.catch_up) == ("UTC", True, CatchUp.LATEST)
    assert one.run_of("weekly-digest", AT) == "weekly-digest-2026-W32"
    assert one.cursor_column() == "id"
    assert (one.deadline(AT), one.run_deadline(AT), one.shown_dsn()) == (None, None, None)


def test_all_of_it_can_be_said(tmp_path: Path) -> None:
    one = schedule(
        tmp_path,
        """
        time_zone = "Europe/Berlin"
        cursor = "n"
        run = "digest-%Y-%m-%d"
        type = "digest.v1"
        deadline_s = 3600
        run_deadline_s = 86_400
        owner = "marketplace"
        labels = { team = "mail" }
        catch_up = "all"
        catch_up_limit = 3
        enabled = false
        page = 10
        page_timeout_s = 5
        """,
    )
    assert one.run_of("weekly-digest", AT) == "digest-2026-08-03"
    assert one.deadline(AT) == AT + timedelta(hours=1)
    assert one.run_deadline(AT) == AT + timedelta(days=1)
    assert one.cursor_column() == "n"


def test_the_query_and_the_address_of_its_database_may_be_in_files(tmp_path: Path) -> None:
    (tmp_path / "rows.sql").write_text("select id from accounts where active\n")
    (tmp_path / "shop-dsn").write_text("postgresql://shop:s3cret@db/shop\n")
    text = ONE.replace('sql = "select id from accounts"', 'sql_file = "rows.sql"\ndsn_file = "shop-dsn"')
    one = read(tmp_path, text).schedules["weekly-digest"]
    assert one.sql == "select id from accounts where active"
    assert one.shown_dsn() == "postgresql://shop:***@db/shop"


def test_the_environment_sets_a_key(tmp_path: Path) -> None:
    env = {"ACKLAST__SCHEDULES__WEEKLY_DIGEST__ENABLED": "false"}
    assert not schedule(tmp_path, env=env).enabled


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'lane = "cleanup"',
            'lane = "cleanups"',
            '"cleanups": must be one of the lanes and fan-outs: cleanup,',
        ),
        ("0 7 * * MON", "0 7 * * MOON", 'cron = "0 7 * * MOON": must be a cron expression'),
        ("sql = ", "sqll = ", "sqll is not a known key: did you mean 'sql'?"),
        ('sql = "select id from accounts"', "", "sql is missing: give sql, sql_file or rows"),
        ('sql = "select id from accounts"', 'sql_file = "no.sql"', "no.sql: cannot be read: No such file"),
        ("sql = ", 'rows = "digest:rows"\nsql = ', "sql is given besides rows"),
        ("sql = ", "deadline_s = 1e300\nsql = ", "deadline_s = 1e+300: must be less than or equal to"),
        ("sql = ", "run_deadline_s = 4e9\nsql = ", "run_deadline_s = 4000000000.0: must be less than or"),
        ("sql = ", 'sql_file = "x"\nsql = ', "sql is given besides sql_file: keep one"),
        ('sql = "select id from accounts"', 'rows = "digest"', 'must be "module:callable"'),
        ('sql = "select id from accounts"', 'rows = "a:b"\ndsn = "postgresql://h/d"', "dsn is for sql alone"),
        ("{run}:{id}", "{run}", 'key = "{run}": must be a key like'),
        ("{run}:{id}", "{a}:{b}", "cursor is missing: name a column"),
        ("sql = ", 'time_zone = "Europe/Berln"\nsql = ', "perhaps 'Europe/Berlin'"),
        ("sql = ", 'run = "x-%A"\nsql = ', "must use fields among %G, %V"),
        ("sql = ", 'catch_up = "some"\nsql = ', "catch_up = \"some\": must be 'latest', 'all' or 'skip'"),
        ("sql = ", 'labels = { "a b" = "c" }\nsql = ', "labels.a b"),
        ("sql = ", "page = 0\nsql = ", "page = 0: must be greater than or equal to 1"),
        ("sql = ", "deadline_s = 0\nsql = ", "deadline_s = 0: must be greater than 0"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in ONE
    complained = complaint(tmp_path, ONE.replace(old, new))
    assert said in complained
    assert "schedules.weekly-digest." in complained
    assert complained.count("\n") == 1


@pytest.mark.parametrize(
    "more", ['dsn = "postgres//shop:s3cret@db/shop"', 'dsn_file = "broken"', '[schedules]\nother = "s3cret"']
)
def test_no_secret_is_said(tmp_path: Path, more: str) -> None:
    (tmp_path / "broken").write_text("mysql://shop:s3cret@db/shop")
    text = ONE.replace("[schedules.weekly-digest]", f"{more}\n[schedules.weekly-digest]")
    complained = complaint(tmp_path, text if more.startswith("[") else ONE + more)
    assert "schedules." in complained
    assert "s3cret" not in complained


# --- runs -------------------------------------------------------------------------------------------------


def test_a_schedule_that_would_fire_twice_as_one_run_is_refused(tmp_path: Path) -> None:
    one = schedule(tmp_path, 'run = "digest-%Y-%m"\n')
    with pytest.raises(ConfigError, match=r"'digest-2026-08'.*nothing") as caught:
        insist_on_runs({"weekly-digest": one}, AT)
    assert "schedules.weekly-digest.run" in caught.value.remedy


def test_two_schedules_with_the_same_runs_are_refused(tmp_path: Path) -> None:
    one = schedule(tmp_path, 'run = "digest-%G-%V"\n')
    with pytest.raises(ConfigError, match="'a' and 'b'"):
        insist_on_runs({"a": one, "b": one}, AT)
    insist_on_runs({"a": schedule(tmp_path), "b": schedule(tmp_path)}, AT)
