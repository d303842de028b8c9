"""An HTTP lane in the configuration: complete, checked, and no secret in what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acklast.config import load_app
from acklast.config.http import Http
from acklast.errors import ConfigError
from harness.configs import changed, complaint, read

SERVERS = """
[broker]
url = "amqp://guest:s3cret@rabbit:5672/vhost"
[ledger]
dsn = "postgresql://acklast:s3cret@db:5432/ledger"
"""
ONE = f"""{SERVERS}
[lanes.reminders.http]
url = "https://mail.example/send"
"""


def http_of(tmp_path: Path, more: str = "", env: dict[str, str] | None = None) -> Http:
    found = read(tmp_path, ONE + more, env).lanes["reminders"].http
    assert found is not None
    return found


def wrong(tmp_path: Path, more: str) -> str:
    """What is said of the lane's table with these lines in it, without the first line and the remedy."""
    return complaint(tmp_path, ONE + more)


# --- no Python --------------------------------------------------------------------------------------------


def test_without_python_there_is_no_application_to_name(tmp_path: Path) -> None:
    config = read(tmp_path, ONE)
    assert config.app is None
    job = load_app(config).find("reminders", "whatever.v1")
    assert job is not None
    assert load_app(config).find("reminders", None) is not None


def test_one_lane_with_handlers_needs_an_application(tmp_path: Path) -> None:
    said = complaint(tmp_path, ONE + "[lanes.cleanup]\n")
    assert 'app is missing: name the handlers as "module:attribute"' in said


def test_a_lane_has_handlers_or_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "both_handlers.py").write_text(
        "from acklast import App\napp = App()\n"
        '@app.job("cleanup.v1", lane="cleanup")\nasync def cleanup(payload: dict) -> None: ...\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    more = '[lanes.cleanup.http]\nurl = "https://a.example/"\n'
    text = changed("handlers:app", "both_handlers:app").replace("[lanes.rent-reminders]\nconcurrency = 3", "")
    with pytest.raises(ConfigError, match=r"lane 'cleanup' has handlers and a table .*: keep one of the two"):
        load_app(read(tmp_path, text + more))


def test_a_lane_without_either_is_told_both_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_handlers.py").write_text("from acklast import App\napp = App()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"add @app.job\(.*\) or a table \[lanes.cleanup.http\], or remove"):
        load_app(read(tmp_path, changed("handlers:app", "no_handlers:app")))


# --- values -----------------------------------------------------------------------------------------------


def test_what_is_not_said_has_a_default(tmp_path: Path) -> None:
    http = http_of(tmp_path)
    assert (http.method, http.max_redirects, http.excerpt_bytes) == ("POST", 0, 0)
    assert (http.connect_timeout_s, http.read_timeout_s, http.timeout_s) == (5, 30, None)


def test_statuses_are_numbers_and_classes(tmp_path: Path) -> None:
    http = http_of(tmp_path, 'method = "put"\nstatus = { 409 = "done", 5xx = "unknown" }\n')
    assert http.method == "PUT"
    assert {key: meaning.value for key, meaning in http.status.items()} == {"409": "done", "5xx": "unknown"}


def test_the_environment_reaches_into_the_table(tmp_path: Path) -> None:
    env = {"ACKLAST__LANES__REMINDERS__HTTP__URL": "http://127.0.0.1:8080/x"}
    assert http_of(tmp_path, env=env).url == "http://127.0.0.1:8080/x"


# --- secrets ----------------------------------------------------------------------------------------------


def test_secrets_are_read_from_their_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" s3cret-token\n")
    http = http_of(tmp_path, 'secrets = { t = "token" }\nheaders = { A = "Bearer {{ secrets.t }}" }\n')
    assert http.secrets["t"].get_secret_value() == "s3cret-token"
    assert "s3cret" not in repr(http)
    assert "s3cret" not in repr(http.request("reminders"))


def test_a_bare_name_is_a_credential_where_there_are_any(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "token").write_text("from-systemd")
    http = http_of(tmp_path, 'secrets = { t = "token" }\n', {"CREDENTIALS_DIRECTORY": str(credentials)})
    assert http.secrets["t"].get_secret_value() == "from-systemd"


@pytest.mark.parametrize("given", ['"nowhere"', '""', "7"])
def test_a_secret_that_cannot_be_read_is_named(tmp_path: Path, given: str) -> None:
    said = wrong(tmp_path, f"secrets = {{ token = {given} }}\n")
    assert "acklast.toml: lanes.reminders.http.secrets.token" in said
    assert "cannot be read" in said or "must be a file's name" in said


# --- what is wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("headers = { A = '{{ tenant }}' }", "http.headers.A names tenant: known are body, deadline"),
        ("headers = { A = '{{ secrets.token }}' }", "http.headers.A names secrets.token, which the table"),
        ("json = { a = ['{{ key'] }", "http.json (json.a[0]) is no template"),
        ("json = { a = 1 }\nbody = 'x'", "http.body is given besides json: keep one"),
        ("headers = { 'Content-Length' = '1' }", "frames the message"),
        ("headers = { 'a b' = '1' }", "is no header's name"),
        ("headers = { a = '1', A = '2' }", "http.headers names a twice"),
        ("method = 'TRACE'", "lanes.reminders.http.method = \"TRACE\": must be 'GET', 'HEAD', 'POST'"),
        ("status = { 4x = 'done' }", "must be a status such as 409"),
        ("status = { 409 = 'fine' }", "http.status.409 = \"fine\": must be 'done', 'rate_limited'"),
        ("connect_timeout = 5", "did you mean 'connect_timeout_s'?"),
        ("timeout_s = 61", "lanes.reminders.http.timeout_s = 61.0: must be at most the lane's timeout_s, 60"),
        ("ca_file = 'nowhere.pem'", "cannot be read: No such file"),
        ("ca_file = 'acklast.toml'", "must be a file of certificates in PEM"),
        ("secrets = { 'my-token' = 'token' }", "must be a name of letters, digits and '_'"),
        ("excerpt_bytes = 100000", "http.excerpt_bytes = 100000: must be less than or equal to 1024"),
    ],
)
def test_each_mistake_is_named_with_what_is_valid(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "token").write_text("s3cret")
    assert said in wrong(tmp_path, lines + "\n")


def test_a_url_without_a_host_is_said_to_be_none(tmp_path: Path) -> None:
    text = ONE.replace("https://mail.example/send", "/send")
    said = complaint(tmp_path, text)
    assert "lanes.reminders.http.url must be absolute, with scheme and host written out" in said


def test_nothing_can_be_asked_of_an_http_lane(tmp_path: Path) -> None:
    lane = '[lanes.reminders]\non_unknown = "reconcile"\n[lanes.reminders.http]'
    said = complaint(tmp_path, ONE.replace("[lanes.reminders.http]", lane))
    assert 'lanes.reminders.on_unknown = "reconcile": must be "retry" or "hold"' in said


@pytest.mark.parametrize(
    "lines",
    [
        "headers = { Authorization = 'Bearer s3cret {{ nobody }}' }",
        "headers = 's3cret'",
        "json = 's3cret {{ nobody }}'",
        "body = 's3cret {{'",
        "idempotency_header = 's3cret token'",
        "secrets = 's3cret'",
        "password = 's3cret'",
    ],
)
def test_a_token_that_was_written_where_it_should_not_be_is_not_repeated(tmp_path: Path, lines: str) -> None:
    assert "s3cret" not in wrong(tmp_path, lines + "\n")


@pytest.mark.parametrize("value", ["'x'", "[]", "7"])
def test_the_table_must_be_one(tmp_path: Path, value: Any) -> None:
    said = complaint(tmp_path, f'app = "handlers:app"\n{SERVERS}\n[lanes.reminders]\nhttp = {value}\n')
    assert "must be a table, [lanes.reminders.http]" in said


# --- the breaker of a budget --------------------------------------------------------------------------------


def test_a_breaker_has_defaults_and_a_cap_that_fits(tmp_path: Path) -> None:
    text = changed('quota = "50 per 1 s"', 'quota = "50 per 1 s"\nbreaker = { after = 3, pause_s = 600 }')
    rules = read(tmp_path, text).budgets["property-api"].breaker.rules()
    assert (rules.after, rules.pause_s, rules.pause_cap_s) == (3, 600, 600)


def test_a_slip_in_a_breaker_is_named(tmp_path: Path) -> None:
    text = changed('quota = "50 per 1 s"', 'quota = "50 per 1 s"\nbreaker = { aftr = 3 }')
    said = complaint(tmp_path, text)
    assert "budgets.property-api.breaker.aftr is not a known key: did you mean 'after'?" in said
