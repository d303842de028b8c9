"""``acklast schedule`` as a person uses it: what comes, what came, firing by hand, and a pause."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from acklast.cron import Cron, zone_of
from acklast.errors import Exit
from harness.asking import Asking
from harness.command import Command

BAD = "select id, id as code from people union all select 0, null"
TABLE = """
[schedules.weekly]
lane = "cleanup"
cron = "0 7 * * MON"
time_zone = "Europe/Berlin"
sql = "{sql}"
cursor = "id"
key = "{{run}}:{{{key}}}"
catch_up = "{catch_up}"
enabled = {enabled}
"""


def table(
    sql: str = "select id from people", key: str = "id", catch_up: str = "all", enabled: str = "true"
) -> str:
    return TABLE.format(sql=sql, key=key, catch_up=catch_up, enabled=enabled)


@pytest.fixture
def sql(ledger_dsn: str) -> Iterator[Asking]:
    with closing(Asking(ledger_dsn)) as asking:
        asking("create table people as select n as id from generate_series(1, 7) n")
        yield asking


@pytest.fixture
def command(tmp_path: Path, ledger_dsn: str, capsys: pytest.CaptureFixture[str], sql: Asking) -> Command:
    made = Command(tmp_path, "amqp://nobody/", ledger_dsn, capsys)
    made.configure(more=table())
    return made


def last_monday() -> datetime:
    """The last time that it should have fired."""
    now = datetime.now(UTC)
    until = now - timedelta(minutes=2)  # what is just now is not late
    return list(Cron.parse("0 7 * * MON", zone_of("Europe/Berlin")).between(now - timedelta(days=8), until))[
        -1
    ]


def outbox(sql: Asking) -> list[Any]:
    return [row["key"] for row in sql("select key from acklast.outbox order by id")]


# --- next and list ----------------------------------------------------------------------------------------


def test_what_comes_is_shown_by_the_clocks_of_its_zone(command: Command) -> None:
    [one] = command("schedule", "next", "--count", "30", "--json").document["schedules"]
    assert one["name"] == "weekly"
    assert len({moment["run"] for moment in one["next"]}) == 30
    assert {moment["local"][11:16] for moment in one["next"]} == {"07:00"}
    assert {moment["local"][-6:] for moment in one["next"]} == {"+01:00", "+02:00"}
    assert "CEST (+0200)" in command("schedule", "next", "weekly", "--count", "30").out


def test_what_the_clocks_do_is_remarked(command: Command) -> None:
    command.configure(more=table().replace("0 7 * * MON", "30 2 * * SUN"))
    [one] = command("schedule", "next", "--count", "60", "--json").document["schedules"]
    remarks = [moment["remark"] for moment in one["next"] if moment["remark"]]
    assert "moved: the clock skips its time" in remarks
    assert "the clock shows it twice: the first time" in remarks


def test_an_unknown_schedule_is_told_with_what_is_meant(command: Command) -> None:
    ended = command("schedule", "next", "weekli")
    assert (ended.exit, "Did you mean 'weekly'?" in ended.err) == (Exit.CONFIG, True)


def test_a_list_says_how_each_stands(command: Command) -> None:
    [one] = command("schedule", "list", "--json").document["schedules"]
    assert (one["state"], one["last"], one["next"]["local"][11:16]) == ("ok", None, "07:00")
    command("schedule", "fire", "weekly")
    [one] = command("schedule", "list", "--json").document["schedules"]
    assert (one["state"], one["last"]["promised"]) == ("ok", 7)
    assert "7 rows, 7 jobs" in command("schedule", "list").out
    command.configure(more=table(enabled="false"))
    [one] = command("schedule", "list", "--json").document["schedules"]
    assert (one["state"], one["next"]) == ("disabled", None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("sql = ", "run = 'x-%Y'\nsql = "), "as the same run"),
        (('sql = "select id from people"', 'rows = "nothing_there:rows"'), "'nothing_there' is not found"),
    ],
)
def test_what_would_keep_a_schedule_from_firing_is_told_by_check_and_at_the_start(
    command: Command, change: tuple[str, str], said: str
) -> None:
    command.configure(more=table().replace(*change))
    ended = command("check", "--json")
    [one] = [part for part in ended.document["checks"] if part["name"] == "schedules"]
    assert (ended.exit, one["ok"], said in one["detail"]) == (Exit.CONFIG, False, True)
    refused = command("scheduler")
    assert (refused.exit, said in refused.err) == (Exit.CONFIG, True)


# --- fire -------------------------------------------------------------------------------------------------


def test_firing_by_hand_makes_a_run_once(command: Command, sql: Asking) -> None:
    first = command("schedule", "fire", "weekly", "--as", "anna", "--json").document
    assert (first["new"], first["firing"]["actor"], first["firing"]["cause"]) == (True, "anna", "operator")
    assert outbox(sql) == [f"{first['run']}:{n}" for n in range(1, 8)]
    again = command("schedule", "fire", "weekly", "--json")
    assert (again.exit, again.document["new"], again.document["run"]) == (Exit.OK, False, first["run"])
    assert "fired before" in command("schedule", "fire", "weekly").out
    assert len(outbox(sql)) == 7
    assert f"run {first['run']}" in command("runs", "show", first["run"]).out


def test_a_missed_time_is_fired_as_its_own_run(command: Command, sql: Asking) -> None:
    at = last_monday() - timedelta(days=7)
    fired = command("schedule", "fire", "weekly", "--at", at.isoformat(), "--json").document
    assert fired["run"] == f"weekly-{at:%G-W%V}"
    assert datetime.fromisoformat(fired["firing"]["scheduled_at"]) == at
    assert len(outbox(sql)) == 7


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("2026-08-03T07:01:00+02:00", "Near that it fires at 2026-08-03T07:00:00+02:00"),
        ("2026-08-03T07:00:00", "has no offset"),
        ("2126-08-05T07:00:00+02:00", "has not come yet"),
    ],
)
def test_a_time_at_which_it_does_not_fire_is_refused(command: Command, at: str, said: str) -> None:
    ended = command("schedule", "fire", "weekly", "--at", at)
    assert ended.exit == Exit.USAGE
    assert said in ended.err


def test_a_dry_run_shows_the_first_rows_and_changes_nothing(command: Command, sql: Asking) -> None:
    command.configure(more=table(BAD, "code"))
    shown = command("schedule", "fire", "weekly", "--dry-run", "--json").document
    assert (shown["fired_before"], shown["more"], len(shown["rows"])) == (False, True, 5)
    assert shown["rows"][0]["problem"] == "0: field 'code' of the key is empty"
    assert shown["rows"][1] == {"key": f"{shown['run']}:1", "problem": None, "row": {"id": 1, "code": 1}}
    assert "and more" in command("schedule", "fire", "weekly", "--dry-run").out
    assert sql("select * from acklast.firings") == []
    assert outbox(sql) == []


def test_rows_that_made_no_job_are_told_by_the_exit_code(command: Command, sql: Asking) -> None:
    command.configure(more=table(BAD, "code"))
    fired = command("schedule", "fire", "weekly", "--json")
    assert (fired.exit, fired.document["firing"]["bad"]) == (Exit.INCOMPLETE, 1)
    assert len(outbox(sql)) == 7


def test_a_firing_that_fails_is_told_and_tried_again_by_hand(command: Command, sql: Asking) -> None:
    sql("alter table people rename to persons")
    fired = command("schedule", "fire", "weekly", "--json")
    assert (fired.exit, fired.document["firing"]["state"]) == (Exit.INCOMPLETE, "open")
    assert 'relation "people" does not exist' in command("schedule", "history").out
    sql("alter table persons rename to people")
    assert command("schedule", "fire", "weekly").exit == Exit.OK
    [entry] = command("schedule", "history", "weekly", "--json").document["history"]
    assert (entry["state"], entry["tries"], entry["error"], entry["next_try_at"]) == ("done", 1, None, None)


# --- pause and resume -------------------------------------------------------------------------------------


def paused_since(sql: Asking, since: datetime) -> None:
    """As if the pause had begun then."""
    sql("update acklast.schedules set paused_at = $1, decided_until = $1", since)


def test_a_pause_is_told_with_who_and_why_and_is_audited(command: Command, sql: Asking) -> None:
    paused = command("schedule", "pause", "weekly", "--why", "broken", "--as", "anna", "--json").document
    assert paused == {"schedule": "weekly", "action": "pause", "changed": True, "actor": "anna"}
    assert not command("schedule", "pause", "weekly", "-r", "again", "--json").document["changed"]
    [one] = command("schedule", "list", "--json").document["schedules"]
    assert (one["state"], one["paused"]["by"], one["paused"]["reason"]) == ("paused", "anna", "broken")
    assert "by anna: broken" in command("schedule", "list").out
    command("schedule", "resume", "weekly", "--as", "ben", "--reason", "mended")
    assert command("schedule", "list", "--json").document["schedules"][0]["state"] == "ok"
    audit = sql("select actor, action, detail from acklast.audit order by id")
    assert [(row["actor"], row["action"]) for row in audit] == [
        ("anna", "schedules.pause"),
        ("ben", "schedules.resume"),
    ]
    details = [json.loads(row["detail"]) for row in audit]
    assert [(one["schedule"], one["reason"]) for one in details] == [
        ("weekly", "broken"),
        ("weekly", "mended"),
    ]


def test_a_pause_is_not_made_up_for(command: Command, sql: Asking) -> None:
    command("schedule", "pause", "weekly", "-r", "broken")
    paused_since(sql, last_monday() - timedelta(days=15))
    assert command("schedule", "resume", "weekly", "--json").document["fired"] == []
    assert sql("select * from acklast.firings") == []
    [row] = sql("select clock_timestamp() - decided_until < '1 minute' as from_now from acklast.schedules")
    assert row["from_now"]
    assert not command("schedule", "resume", "weekly", "--json").document["changed"]


@pytest.mark.parametrize(("catch_up", "count"), [("all", 3), ("latest", 1), ("skip", 0)])
def test_a_pause_is_made_up_for_where_that_is_asked(
    command: Command, sql: Asking, catch_up: str, count: int
) -> None:
    command.configure(more=table(catch_up=catch_up))
    command("schedule", "pause", "weekly", "-r", "broken")
    monday = last_monday()
    paused_since(sql, monday - timedelta(days=15))
    fired = command("schedule", "resume", "weekly", "--backfill", "--json").document["fired"]
    wanted = [f"weekly-{monday - timedelta(days=7 * n):%G-W%V}" for n in (2, 1, 0)]
    assert fired == wanted[3 - count :]
    states = {row["state"] for row in sql("select state from acklast.firings")}
    assert states == {"all": {"open"}, "latest": {"open", "skipped"}, "skip": {"skipped"}}[catch_up]
    assert ("skipped" in command("schedule", "history").out) == (catch_up != "all")
