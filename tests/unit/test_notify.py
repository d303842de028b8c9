"""What systemd hears, on a real datagram socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from acklast.notify import Notify

Manager = tuple[socket.socket, Notify]


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """A service manager's socket, and who speaks to it."""
    name = f"acklast-test-{token_hex(8)}"
    named = str(tmp_path / "notify") if request.param == "path" else f"@{name}"
    bound = named if request.param == "path" else f"\0{name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(bound)
        listening.settimeout(30)
        yield listening, Notify({"NOTIFY_SOCKET": named})


def heard(manager: Manager) -> list[str]:
    return manager[0].recv(4096).decode().split("\n")


def test_ready_comes_with_a_status(manager: Manager) -> None:
    manager[1].ready("consuming 2 lanes")
    assert heard(manager) == ["READY=1", "STATUS=consuming 2 lanes"]


def test_stopping_asks_for_the_time_that_the_drain_may_take(manager: Manager) -> None:
    manager[1].stopping("draining", 35.5)
    assert heard(manager) == ["STOPPING=1", "STATUS=draining", "EXTEND_TIMEOUT_USEC=35500000"]


def test_the_smaller_words(manager: Manager) -> None:
    manager[1].status("paused")
    manager[1].extend("draining", 2)
    manager[1].watchdog()
    assert heard(manager) == ["STATUS=paused"]
    assert heard(manager) == ["STATUS=draining", "EXTEND_TIMEOUT_USEC=2000000"]
    assert heard(manager) == ["WATCHDOG=1"]


@pytest.mark.parametrize("env", [{}, {"NOTIFY_SOCKET": ""}])
def test_without_systemd_nothing_is_said(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("no socket is to be opened")

    monkeypatch.setattr(socket, "socket", refuse)
    Notify(env).ready("consuming")


def test_the_process_environment_is_asked_where_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        Notify().watchdog()
        assert listening.recv(100) == b"WATCHDOG=1"


def test_a_manager_that_is_gone_or_does_not_read_stops_nothing(tmp_path: Path) -> None:
    Notify({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready("consuming")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        notify = Notify({"NOTIFY_SOCKET": str(tmp_path / "deaf")})
        for _ in range(2000):  # far more than the socket's queue holds
            notify.watchdog()


def test_a_reload_has_its_time_as_notify_reload_wants_it(manager: Manager) -> None:
    before = time.monotonic_ns() // 1000
    manager[1].reloading()
    first, second = heard(manager)
    assert first == "RELOADING=1"
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
