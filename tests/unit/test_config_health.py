"""Where probes are answered: off unless it is configured, and on this host unless it is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from acklast.config.health import Listen
from harness.configs import GOOD, complaint, read


def test_it_is_off_where_nothing_is_configured(tmp_path: Path) -> None:
    health = read(tmp_path).health
    assert (health.listen, health.relay_listen, health.scheduler_listen) == (None, None, None)


@pytest.mark.parametrize(
    ("given", "listen"),
    [
        ("127.0.0.1:8470", Listen("127.0.0.1", 8470)),
        ("127.9.9.9:1", Listen("127.9.9.9", 1)),
        ("localhost:8470", Listen("127.0.0.1", 8470)),
        ("[::1]:65535", Listen("::1", 65_535)),
        ("unix:health.sock", Listen(path="health.sock")),
        ("unix:/run/acklast/health.sock", Listen(path="/run/acklast/health.sock")),
    ],
)
def test_an_address_of_this_host_is_taken(tmp_path: Path, given: str, listen: Listen) -> None:
    config = read(tmp_path, f'{GOOD}[health]\nlisten = "{given}"')
    assert config.health.listen == listen
    assert str(listen) == given.replace("localhost", "127.0.0.1")
    assert read(tmp_path, env={"ACKLAST__HEALTH__LISTEN": given}).health.listen == listen


@pytest.mark.parametrize(
    "given",
    ["8470", ":8470", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:8470", "db:8470", "unix:", ""],
)
def test_what_is_no_address_is_refused_with_one_that_is(tmp_path: Path, given: str) -> None:
    said = complaint(tmp_path, f'{GOOD}[health]\nlisten = "{given}"')
    assert f'health.listen = "{given}": must be an address like "127.0.0.1:8470"' in said
    assert "must be an address" in complaint(tmp_path, f"{GOOD}[health]\nlisten = 8470")


@pytest.mark.parametrize("given", ["0.0.0.0:8470", "[::]:8470", "10.0.0.7:8470", "[2001:db8::1]:8470"])
@pytest.mark.parametrize("key", ["listen", "relay_listen", "scheduler_listen"])
def test_an_address_that_others_reach_has_to_be_allowed(tmp_path: Path, key: str, given: str) -> None:
    text = f'{GOOD}[health]\n{key} = "{given}"'
    assert f'health.{key} = "{given}": can be reached from other hosts' in complaint(tmp_path, text)
    allowed = read(tmp_path, f"{text}\nallow_remote = true")
    assert str(getattr(allowed.health, key)) == given


def test_a_slip_in_the_table_is_told_with_what_was_meant(tmp_path: Path) -> None:
    assert "did you mean 'listen'?" in complaint(tmp_path, f'{GOOD}[health]\nlisten_ = "unix:a"')
    assert "did you mean 'poll_s'?" in complaint(tmp_path, f"{GOOD}[relay]\npolls_s = 1")
