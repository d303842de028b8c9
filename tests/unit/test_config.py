"""A configuration is read whole, completed, and every problem of it is named without a secret."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from acklast import __version__
from acklast.config import Declare, InvalidConfig, LogFormat, Quota, load, select
from acklast.config.fair import FairBy
from acklast.errors import ConfigError
from acklast.policy import OnUnknown, Policy
from harness.configs import GOOD, HOME, changed, complaint, read


def test_defaults_are_complete(tmp_path: Path) -> None:
    config = read(tmp_path)
    assert config.names.ns == "acklast"
    assert config.instance == socket.gethostname()
    assert config.state_dir == Path("/home/jobs/.local/state/acklast")
    assert config.declare is Declare.APPLY
    assert config.log.format is LogFormat.AUTO
    assert config.budgets["property-api"].quota == Quota(count=50, period_s=1.0)
    assert config.lanes["cleanup"].policy() == Policy()
    assert config.path == tmp_path / "acklast.toml"


def test_the_version_is_acklasts_unless_it_is_given(tmp_path: Path) -> None:
    assert read(tmp_path).version == __version__
    assert read(tmp_path, f'version = "2026.11-rc1"\n{GOOD}').version == "2026.11-rc1"
    assert read(tmp_path, env={"ACKLAST_VERSION": "7f3a"}).version == "7f3a"
    for wrong in ("", "two words", "x" * 101, "\\u0007"):
        assert "version" in complaint(tmp_path, f'version = "{wrong}"\n{GOOD}')


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "1001"])
def test_redrives_have_a_bound(tmp_path: Path, given: str) -> None:
    assert read(tmp_path).dead.max_redrives == 3
    assert read(tmp_path, f"{GOOD}[dead]\nmax_redrives = 1").dead.max_redrives == 1
    assert "dead.max_redrives" in complaint(tmp_path, f"{GOOD}[dead]\nmax_redrives = {given}")


@pytest.mark.parametrize(("concurrency", "prefetch"), [(1, 1000), (500, 1000), (501, 1002), (10_000, 20_000)])
def test_the_ceiling_of_prefetch_leaves_room_for_every_handler(
    tmp_path: Path, concurrency: int, prefetch: int
) -> None:
    config = read(tmp_path, changed("concurrency = 3", f"concurrency = {concurrency}"))
    assert config.lanes["rent-reminders"].prefetch == prefetch


def test_a_prefetch_that_is_given_stands(tmp_path: Path) -> None:
    config = read(tmp_path, changed("concurrency = 3", "concurrency = 100\nprefetch = 7"))
    assert config.lanes["rent-reminders"].prefetch == 7


def test_a_lane_makes_its_policy(tmp_path: Path) -> None:
    rules = """
        max_attempts = 3
        max_rate_limited = 4
        backoff_base_s = 0.5
        backoff_cap_s = 20
        retry_after_cap_s = 30
        on_unknown = "hold"
        timeout_s = 5
    """
    config = read(tmp_path, changed("concurrency = 3", rules))
    assert config.lanes["rent-reminders"].policy() == Policy(3, 4, 0.5, 20.0, 30.0, OnUnknown.HOLD, 5.0)


def test_a_configuration_does_not_change(tmp_path: Path) -> None:
    config = read(tmp_path)
    with pytest.raises(ValueError, match="frozen"):
        config.namespace = "other"


@pytest.mark.parametrize(
    ("given", "seconds"), [('"off"', 0.0), ("0", 0.0), ("1", 1.0), ("3600", 3600.0), ("2.5", 2.5)]
)
def test_pruning_is_off_or_every_so_often(tmp_path: Path, given: str, seconds: float) -> None:
    config = read(tmp_path, changed("[budgets", f"prune_every_s = {given}\n[budgets"))
    assert config.ledger.prune_every_s == seconds


@pytest.mark.parametrize("given", ["0.5", "-1", "inf", '"on"', '"often"'])
def test_pruning_without_a_pause_is_refused(tmp_path: Path, given: str) -> None:
    assert "ledger.prune_every_s" in complaint(
        tmp_path, changed("[budgets", f"prune_every_s = {given}\n[budgets")
    )


def test_pruning_is_switched_off_by_the_environment(tmp_path: Path) -> None:
    assert read(tmp_path, env={"ACKLAST__LEDGER__PRUNE_EVERY_S": "off"}).ledger.prune_every_s == 0


# --- fairness ----------------------------------------------------------------------------------------


def test_a_lane_is_fair_by_what_it_says(tmp_path: Path) -> None:
    plain = read(tmp_path)
    assert plain.fair_lanes == ()
    assert set(plain.unfair_lanes) == {"cleanup", "rent-reminders"}
    text = changed(
        "concurrency = 3", 'concurrency = 3\nfair_by = "header:tenant"\nlookahead = 50\nweight = 2.5'
    )
    config = read(tmp_path, text)
    lane = config.lanes["rent-reminders"]
    assert (lane.fair_by, lane.lookahead, lane.weight) == (FairBy(header="tenant"), 50, 2.5)
    assert config.fair_lanes == ("rent-reminders",)
    names = {queue.name for queue in config.plan().queues}
    assert "acklast.v1.rent-reminders.fair.1" in names
    assert "acklast.v1.cleanup.fair.1" not in names


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('fair_by = "runs"', 'fair_by = "runs": must be "run", "type", "priority" or "header:NAME"'),
        ("fair_by = 3", "lanes.cleanup.fair_by = 3"),
        ("lookahead = 5", "lookahead = 5: must be greater than or equal to 10"),
        ("weight = 0", "weight = 0: must be greater than 0"),
        ("weight = inf", "weight = inf: must be"),
    ],
)
def test_a_setting_of_fairness_that_is_wrong_is_told_with_what_is_valid(
    tmp_path: Path, setting: str, said: str
) -> None:
    assert said in complaint(tmp_path, changed("[lanes.cleanup]", f"[lanes.cleanup]\n{setting}"))


@pytest.mark.parametrize("given", ["[1, 5, 60]", '"1, 5 60"'])
def test_the_wait_buckets_are_those_of_every_lane(tmp_path: Path, given: str) -> None:
    config = read(tmp_path, changed("[broker]", f"wait_buckets_s = {given}\n[broker]"))
    assert config.wait_buckets_s == (1, 5, 60)
    waits = {queue.name for queue in config.plan().queues if ".cleanup.wait." in queue.name}
    assert waits == {f"acklast.v1.cleanup.wait.{seconds}" for seconds in (1, 5, 60)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("[5, 30]", "must begin with 1"),
        ("[1, 30, 5]", "the shortest first"),
        ("[1, 1]", "must be different"),
        ("[]", "wait_buckets_s"),
        ("[0, 1]", "wait_buckets_s"),
        ("[1, 2.5]", "wait_buckets_s"),
        ("[1, 3000000]", "wait_buckets_s"),
        ('"1, x"', "wait_buckets_s"),
    ],
)
def test_wait_buckets_that_are_wrong_are_told(tmp_path: Path, given: str, said: str) -> None:
    assert said in complaint(tmp_path, changed("[broker]", f"wait_buckets_s = {given}\n[broker]"))


# --- every problem, at once --------------------------------------------------------------------------


def test_all_problems_come_at_once_each_on_its_line(tmp_path: Path) -> None:
    text = """
        namespace = "Bad.ns"
        app = "handlers"
        declare = "appl"
        [broker]
        heartbeats = 3
        [ledger]
        dsn = "postgresql://h/d"
        lease_s = "soon"
        [budgets.api]
        quota = "50 pr 1 s"
        [lanes.cleanup]
        budget = "ap"
        concurrency = 0
        [lanes."Bad.Lane"]
    """
    lines = complaint(tmp_path, text).splitlines()[1:]
    expected = [
        'acklast.toml: namespace = "Bad.ns": must be 1 to 64 of a-z',
        'acklast.toml: app = "handlers": must be "module:attribute"',
        "acklast.toml: declare = \"appl\": must be 'apply' or 'verify'",
        "acklast.toml: broker.urls is missing: set broker.urls, broker.url_file or ACKLAST_BROKER_URL",
        "acklast.toml: broker.heartbeats is not a known key: did you mean 'heartbeat_s'?",
        'acklast.toml: ledger.lease_s = "soon": must be a valid number',
        'acklast.toml: budgets.api.quota = "50 pr 1 s": must be a quota like "50 per 1 s"',
        "acklast.toml: lanes.cleanup.concurrency = 0: must be greater than or equal to 1",
        'acklast.toml: lanes.cleanup.budget = "ap": must be one of the budgets: api',
        'acklast.toml: lanes.Bad.Lane = "Bad.Lane": must be 1 to 64 of a-z',
    ]
    assert len(lines) == len(expected)
    for start in expected:
        assert any(line.strip().startswith(start) for line in lines), start


def test_bounds_that_depend_on_each_other_are_checked(tmp_path: Path) -> None:
    rules = "backoff_base_s = 10\nbackoff_cap_s = 5\nkeep_done_s = 60\nkeep_payload_s = 3e9"
    told = complaint(tmp_path, changed("concurrency = 3", rules))
    assert "lanes.rent-reminders.backoff_cap_s = 5.0: must be at least backoff_base_s, 10" in told
    assert "lanes.rent-reminders.keep_done_s = 60.0: must be at least the longest that its retries" in told
    assert "lanes.rent-reminders.keep_payload_s = 3000000000.0: must be at most keep_dead_s" in told


@pytest.mark.parametrize(
    ("windows", "short"),
    [
        ("keep_dead_s = 29279", {"keep_dead_s"}),
        ("keep_payload_s = 29279", {"keep_payload_s"}),
        ("keep_dead_s = 29279\nkeep_payload_s = 100", {"keep_dead_s", "keep_payload_s"}),
    ],
)
def test_what_a_redrive_needs_stays_for_as_long_as_its_retries(
    tmp_path: Path, windows: str, short: set[str]
) -> None:
    told = complaint(tmp_path, changed("concurrency = 3", windows))
    again = "must be at least the longest that the retries of a redriven job take, 29280"
    assert set(re.findall(rf"acklast.toml: lanes.rent-reminders.(\w+) = [0-9.]+: {again}", told)) == short
    assert told.count("must be") == len(short)
    assert read(tmp_path, changed("concurrency = 3", "keep_dead_s = 29280")).lanes


def test_a_shorter_window_for_dead_letters_takes_the_payload_along(tmp_path: Path) -> None:
    lane = read(tmp_path, changed("concurrency = 3", "keep_dead_s = 30000")).lanes["rent-reminders"]
    assert lane.keep_payload_s == 30_000


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("[lanes.cleanup]", "[lane.cleanup]", "lane is not a known key: did you mean 'lanes'?"),
        ('app = "handlers:app"', "", 'app is missing: name the handlers as "module:attribute"'),
        ("concurrency = 3", "keep_done_s = inf", "lanes.rent-reminders.keep_done_s = inf: must be a finite"),
        ('quota = "50 per 1 s"', "quota = 50", "budgets.property-api.quota"),
        ('quota = "50 per 1 s"', 'quota = "0 per 1 s"', '"0 per 1 s": must allow at least 1 call'),
    ],
)
def test_a_problem_names_its_key_and_what_is_valid(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert told in complaint(tmp_path, changed(old, new))


def test_a_section_that_is_no_table_is_named(tmp_path: Path) -> None:
    assert "lanes must be a table, [lanes]" in complaint(tmp_path, 'app = "a:b"\nlanes = 3')


def test_a_syntax_error_names_line_and_column(tmp_path: Path) -> None:
    told = complaint(tmp_path, 'app = "handlers:app"\nnamespace = \n')
    assert "line 2, column 13" in told
    assert "acklast.toml" in told


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration file .*nowhere\.toml"):
        load(tmp_path / "nowhere.toml", HOME)


def test_bytes_that_are_not_utf8_are_placed(tmp_path: Path) -> None:
    path = tmp_path / "acklast.toml"
    path.write_bytes(b'app = "\xff"')
    with pytest.raises(ConfigError, match="byte 8 is not UTF-8"):
        load(path, HOME)


# --- where the state is kept -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"STATE_DIRECTORY": "/var/lib/acklast:/var/lib/other"}, "/var/lib/acklast"),
        ({"XDG_STATE_HOME": "/srv/state"}, "/srv/state/acklast"),
        ({"XDG_STATE_HOME": "relative/is/ignored"}, "/home/jobs/.local/state/acklast"),
    ],
)
def test_the_state_directory_follows_systemd_then_xdg(
    tmp_path: Path, env: dict[str, str], expected: str
) -> None:
    assert read(tmp_path, env=env).state_dir == Path(expected)


def test_a_relative_state_directory_lies_beside_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, 'state_dir = "state"\n' + GOOD).state_dir == tmp_path / "state"


# --- choosing lanes ----------------------------------------------------------------------------------


def test_lanes_are_selected_by_name(tmp_path: Path) -> None:
    config = read(tmp_path)
    assert set(select(config, ["cleanup"]).lanes) == {"cleanup"}
    assert select(config, []).lanes == config.lanes
    assert select(config, ["cleanup"]).path == config.path


def test_a_lane_that_is_not_configured_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'cleanup'"):
        select(read(tmp_path), ["clenup"])


def test_the_command_lines_instance_wins_and_is_checked(tmp_path: Path) -> None:
    assert read(tmp_path, env={"ACKLAST__INSTANCE": "env"}, instance="worker-2").instance == "worker-2"
    with pytest.raises(InvalidConfig) as caught:
        read(tmp_path, instance="a/b")
    assert '--instance = "a/b": must be 1 to 64' in caught.value.what


FANNED = '[lanes.mail]\n[fan_out.ended]\nlanes = ["rent-reminders", "mail"]\n'


def test_a_lane_alone_brings_its_fan_outs_other_lanes_into_the_plan(tmp_path: Path) -> None:
    config = read(tmp_path, f'{GOOD}\n{FANNED}[fan_out.other]\nlanes = ["mail"]\n')
    alone = config.only(["rent-reminders"])
    assert (set(alone.lanes), set(alone.fan_out)) == ({"rent-reminders"}, {"ended"})
    queues = {queue.name for queue in alone.plan().queues}
    assert {config.names.work("rent-reminders"), config.names.work("mail")} <= queues
    assert config.names.work("cleanup") not in queues
    bound = {binding.key for binding in alone.plan().bindings if binding.queue == config.names.work("mail")}
    assert {"ended", "ended.#"} <= bound
    assert "other" not in bound


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[fan_out.mail]\nlanes = ["mail"]', "fan_out.mail has the name of a lane"),
        ('[fan_out.f]\nlanes = ["mial"]', 'fan_out.f.lanes = "mial": must be of the lanes'),
        ('[fan_out.f]\nlanes = ["mail", "mail"]', "fan_out.f.lanes names a lane twice"),
        ("[fan_out.f]\nlanes = []", "fan_out.f.lanes must name at least 1"),
        ("[fan_out.F]\nlanes = []", "fan_out"),
        ('[fan_out.f]\nlane = ["mail"]', "did you mean 'lanes'?"),
    ],
)
def test_a_fan_out_that_cannot_be_is_named(tmp_path: Path, table: str, said: str) -> None:
    assert said in complaint(tmp_path, f"{GOOD}\n[lanes.mail]\n{table}\n")
