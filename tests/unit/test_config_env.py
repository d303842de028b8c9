"""The environment over the file, and secrets: from files, never in an error, a repr or a shown address."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.config.secrets import masked
from harness.configs import GOOD, changed, complaint, read

BROKER = {"ACKLAST_BROKER_URL": "amqp://env:env-pass@other/"}


def test_the_short_names_replace_what_the_file_says(tmp_path: Path) -> None:
    env = BROKER | {"ACKLAST_LEDGER_DSN": "postgresql://env@other/db"}
    config = read(tmp_path, env=env)
    assert config.broker.addresses() == ("amqp://env:env-pass@other/",)
    assert config.ledger.address() == "postgresql://env@other/db"


def test_the_environment_replaces_a_secrets_file_too(tmp_path: Path) -> None:
    text = changed('url = "amqp://guest:s3cret@rabbit:5672/vhost"', 'url_file = "not-there"')
    assert read(tmp_path, text, BROKER).broker.addresses() == ("amqp://env:env-pass@other/",)


def test_several_urls_come_in_one_variable(tmp_path: Path) -> None:
    config = read(tmp_path, env={"ACKLAST_BROKER_URL": "amqp://a/, amqps://b:5671/v"})
    assert config.broker.addresses() == ("amqp://a/", "amqps://b:5671/v")


def test_any_key_can_be_set_and_lanes_with_a_dash_are_written_with_an_underscore(tmp_path: Path) -> None:
    env = {
        "ACKLAST__LANES__RENT_REMINDERS__CONCURRENCY": "1700",
        "ACKLAST__BUDGETS__PROPERTY_API__QUOTA": "7 per 1 min",
        "ACKLAST__LOG__LEVEL": "debug",
        "ACKLAST__NAMESPACE": "staging",
        "ACKLAST__LEDGER__ALLOW_UNSAFE_SERVER": "true",
    }
    config = read(tmp_path, env=env)
    assert config.lanes["rent-reminders"].concurrency == 1700
    assert config.lanes["rent-reminders"].prefetch == 3400
    assert config.budgets["property-api"].quota.period_s == 60.0
    assert config.log.level == "debug"
    assert config.namespace == "staging"
    assert config.ledger.allow_unsafe_server


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    env = {"ACKLAST_BROKER_URL": "", "ACKLAST__NAMESPACE": ""}
    assert read(tmp_path, env=env).namespace == "acklast"


def test_a_variable_cannot_make_a_lane(tmp_path: Path) -> None:
    told = complaint(tmp_path, env={"ACKLAST__LANES__CLENUP__CONCURRENCY": "2"})
    assert "ACKLAST__LANES__CLENUP__CONCURRENCY names no table [lanes.*] of the file" in told
    assert "did you mean 'cleanup'?" in told


def test_a_variable_that_could_mean_two_lanes_is_refused(tmp_path: Path) -> None:
    env = {"ACKLAST__LANES__RENT_REMINDERS__CONCURRENCY": "2"}
    told = complaint(tmp_path, GOOD + "[lanes.rent_reminders]\n", env)
    assert "could mean each of rent-reminders, rent_reminders" in told


def test_a_problem_with_a_variable_names_the_variable(tmp_path: Path) -> None:
    env = {"ACKLAST__LANES__CLEANUP__CONCURRENCY": "many", "ACKLAST__LOG__LEVL": "x", "ACKLAST__LANE": "y"}
    told = complaint(tmp_path, env=env)
    assert 'ACKLAST__LANES__CLEANUP__CONCURRENCY = "many": must be a valid integer' in told
    assert "ACKLAST__LOG__LEVL is not a known key: did you mean 'level'?" in told
    assert "ACKLAST__LANE is not a known key: did you mean 'lanes'?" in told


def test_a_variable_with_an_underscore_too_few_is_no_silent_nothing(tmp_path: Path) -> None:
    told = complaint(tmp_path, env={"ACKLAST_LOG_LEVEL": "debug"})
    assert "ACKLAST_LOG_LEVEL sets nothing: write ACKLAST__LOG__LEVEL" in told
    strangers = {"ACKLAST_LOG_LEVEL": "", "ACKLAST_BROKER_ROOT": "of others", "ACKLAST_CONFIG": "x.toml"}
    assert read(tmp_path, env=strangers).log.level == "info"


def test_two_variables_for_one_key_are_refused(tmp_path: Path) -> None:
    told = complaint(tmp_path, env=BROKER | {"ACKLAST__BROKER__URLS": "amqp://x/"})
    assert "ACKLAST_BROKER_URL" in told
    assert "ACKLAST__BROKER__URLS" in told


def test_a_variable_under_a_section_that_is_no_table_is_no_crash(tmp_path: Path) -> None:
    told = complaint(tmp_path, 'app = "a:b"\nbroker = 3\nlanes = 4', BROKER)
    assert "broker" in told
    assert "must be a table" in told


# --- secrets -----------------------------------------------------------------------------------------


def test_a_secret_comes_from_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "broker.secret").write_text("amqp://u:from-file@h/\n")
    text = changed('url = "amqp://guest:s3cret@rabbit:5672/vhost"', 'url_file = "broker.secret"')
    assert read(tmp_path, text).broker.addresses() == ("amqp://u:from-file@h/",)


def test_a_bare_name_is_a_systemd_credential_where_there_are_any(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "dsn").write_text("postgresql://u:credential@h/d")
    (tmp_path / "dsn").write_text("postgresql://u:beside@h/d")
    bare = changed('dsn = "postgresql://acklast:s3cret@db:5432/ledger"', 'dsn_file = "dsn"')
    env = {"CREDENTIALS_DIRECTORY": str(credentials)}
    assert "credential" in read(tmp_path, bare, env).ledger.address()
    assert "beside" in read(tmp_path, bare).ledger.address()
    assert "beside" in read(tmp_path, bare.replace('"dsn"', '"./dsn"'), env).ledger.address()


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ('url_file = "broker.secret"', "broker.url is given besides url_file: keep one"),
        ('urls = ["amqp://b/"]', "broker.urls is given besides url: keep one"),
    ],
)
def test_a_secret_given_twice_is_refused(tmp_path: Path, extra: str, told: str) -> None:
    assert told in complaint(tmp_path, changed("[ledger]", f"{extra}\n[ledger]"))


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "cannot be read: No such file"), (b" \n", "is empty"), (b"\xff", "is not UTF-8")],
)
def test_a_secrets_file_that_gives_nothing_is_named(tmp_path: Path, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    text = changed('dsn = "postgresql://acklast:s3cret@db:5432/ledger"', 'dsn_file = "secret"')
    said = complaint(tmp_path, text)
    assert f"ledger.dsn_file = {tmp_path}/secret: {told}" in said
    assert "missing" not in said


def test_a_wrong_secret_from_a_file_is_told_by_the_files_key(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mysql://u:s3cret@h/d")
    text = changed('dsn = "postgresql://acklast:s3cret@db:5432/ledger"', 'dsn_file = "secret"')
    told = complaint(tmp_path, text)
    assert "ledger.dsn_file must be" in told
    assert "s3cret" not in told


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('url = "amqp://guest:s3cret@rabbit:5672/vhost"', 'url = "amqp://guest:s3cret@rabbit:56x/"'),
        ('url = "amqp://guest:s3cret@rabbit:5672/vhost"', 'urls = ["guest:s3cret@rabbit"]'),
        ('url = "amqp://guest:s3cret@rabbit:5672/vhost"', 'urls = [["amqp://guest:s3cret@rabbit"]]'),
        ('url = "amqp://guest:s3cret@rabbit:5672/vhost"', 'addr = "amqp://guest:s3cret@rabbit"'),
        ('dsn = "postgresql://acklast:s3cret@db:5432/ledger"', 'dsn = "host=db password=s3cret"'),
        ('dsn = "postgresql://acklast:s3cret@db:5432/ledger"', 'dns = "host=db password=s3cret"'),
        ('dsn = "postgresql://acklast:s3cret@db:5432/ledger"', 'lease_s = "postgresql://u:s3cret@h"'),
        ('app = "handlers:app"', 'app = "amqp://guest:s3cret@rabbit"'),
        ('app = "handlers:app"', 'app = "handlers:app"\nbudgets = "amqp://guest:s3cret@rabbit"'),
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, old: str, new: str) -> None:
    text = changed(old, new)
    if "budgets =" in new:
        text = text.replace("[budgets.property-api]", "[drain]").replace('quota = "50 per 1 s"', "")
    told = complaint(tmp_path, text)
    assert "s3cret" not in told


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    config = read(tmp_path)
    for text in (repr(config), str(config), config.model_dump_json(), *config.broker.shown()):
        assert "s3cret" not in text
    assert config.broker.shown() == ("amqp://guest:***@rabbit:5672/vhost",)
    assert config.ledger.shown() == "postgresql://acklast:***@db:5432/ledger"


@pytest.mark.parametrize(
    "secret",
    ["u:s3cret/x@h", "u:s3cret#x@h", "u:s3cret?x@h", "u:12/s3cret@h", "u:12#s3cret@h", "u:p@h:s3cret"],
)
def test_a_password_that_is_not_escaped_is_refused_before_a_driver_can_show_it(
    tmp_path: Path, secret: str
) -> None:
    broker = complaint(tmp_path, env={"ACKLAST_BROKER_URL": f"amqp://{secret}/v"})
    ledger = complaint(tmp_path, env={"ACKLAST_LEDGER_DSN": f"postgresql://{secret}/db"})
    assert "ACKLAST_BROKER_URL must be" in broker
    assert "ACKLAST_LEDGER_DSN must be" in ledger
    assert "percent-encoded" in broker + ledger
    assert "s3cret" not in broker + ledger


@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("ACKLAST_BROKER_URL", "amqp://h"),
        ("ACKLAST_BROKER_URL", "amqps://u:p%2Fw%40@[::1]:5671/%2Fv?heartbeat=5"),
        ("ACKLAST_LEDGER_DSN", "postgresql:///db?host=/run/postgresql"),
        ("ACKLAST_LEDGER_DSN", "postgres://u:p@a:5432,b:5433/db?application_name=x@y"),
        ("ACKLAST_LEDGER_DSN", "postgresql://%2Frun%2Fpostgresql/db"),
    ],
)
def test_every_form_of_an_address_is_taken(tmp_path: Path, variable: str, url: str) -> None:
    config = read(tmp_path, env={variable: url})
    assert url in (*config.broker.addresses(), config.ledger.address())


@pytest.mark.parametrize("url", ["amqp://", "amqp:///v", "http://h/", "h:5672", "amqp://h:99999999/"])
def test_what_is_no_address_is_refused(tmp_path: Path, url: str) -> None:
    assert "ACKLAST_BROKER_URL must be" in complaint(tmp_path, env={"ACKLAST_BROKER_URL": url})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://host/v", "amqp://host/v"),
        ("amqp://user@host/v", "amqp://user@host/v"),
        ("amqp://user:p@ss@host/v", "amqp://user:***@host/v"),
        ("amqp://user:p/a?s@host/v", "amqp://***"),
        ("postgresql://host/db?password=secret", "postgresql://host/db"),
        ("postgresql://u:p@host/db?password=a@b", "postgresql://***"),
        ("no address at all", "***"),
    ],
)
def test_an_address_is_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


@given(st.text(min_size=1).map(lambda tail: f"~{tail}~"), st.sampled_from(["amqp://{}h/v", "{}", "x://h/{}"]))
def test_masking_never_shows_a_password(password: str, shape: str) -> None:
    assert password not in masked(shape.format(f"user:{password}@"))
