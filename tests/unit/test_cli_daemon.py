"""``acklast run`` hands the daemon the configuration and the application that were asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from acklast import App
from acklast.cli import daemon
from acklast.config import Config, LogFormat
from acklast.errors import Exit
from harness.command import Command

SCHEDULE = """
[schedules.daily]
lane = "cleanup"
cron = "0 3 * * *"
sql = "select 7 as id"
key = "{run}:{id}"
"""
Started: TypeAlias = tuple[Config, App, Callable[[], Config]]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, "amqp://127.0.0.1:1/", "postgresql://127.0.0.1:1/x", capsys)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    """What the daemon was started with; it ends at once, having cut something."""
    calls: list[Started] = []

    async def run(config: Config, app: App, read: Callable[[], Config]) -> Exit:
        calls.append((config, app, read))
        return Exit.CUT

    monkeypatch.setattr(daemon, "run_daemon", run)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return calls


def test_it_ends_as_the_daemon_ended(command: Command, started: list[Started]) -> None:
    assert command("run").exit == Exit.CUT
    (config, app, _), *more = started
    assert not more
    assert set(config.lanes) == app.lanes() == {"cleanup"}
    assert config.log.format is LogFormat.AUTO


def test_its_options_win(command: Command, started: list[Started]) -> None:
    command("run", "--instance", "two", "--lane", "cleanup", "--json")
    config, _, read = started[0]
    for one in (config, read()):  # a reload reads it as the start did
        assert (one.instance, set(one.lanes), one.log.format) == ("two", {"cleanup"}, LogFormat.JSON)


def test_a_lane_that_is_not_configured_starts_nothing(command: Command, started: list[Started]) -> None:
    done = command("run", "--lane", "clenup")
    assert done.exit == Exit.CONFIG
    assert "Did you mean 'cleanup'?" in done.err
    assert started == []


@pytest.mark.parametrize("name", ["run", "relay", "scheduler"])
def test_a_wrong_variable_of_the_export_starts_nothing_that_stays(
    command: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    command.configure(more=SCHEDULE)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "carbon")
    done = command(name)
    assert done.exit == Exit.CONFIG
    assert "OTEL_METRICS_EXPORTER=carbon is not known" in done.err
    assert "otlp, console, none" in done.err
