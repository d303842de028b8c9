"""The units of systemd/: systemd takes them, they are shut in, and they say what the program says."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import typer.main

from acklast.cli.root import app
from acklast.config.models import Drain
from acklast.drain import SETTLE_S
from acklast.errors import NO_RESTART, Exit
from dev import need
from dev.nspawn import why_not

ROOT: Final = Path(__file__).parents[2]
UNITS: Final = ROOT / "systemd"
SERVICES: Final = sorted(UNITS.glob("*.service"))
LASTING: Final = [unit for unit in SERVICES if unit.stem != "acklast-prune"]
PLACES: Final = [*SERVICES, *UNITS.glob("*.timer"), *UNITS.glob("*.d/*.conf")]
INSTALLED: Final = "/opt/acklast/bin/acklast"
SECRETS: Final = {"broker-url", "ledger-dsn"}
SINCE_254: Final = ("RestartSteps", "RestartMaxDelaySec")

needs_analyze: Final = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here: it comes with systemd"
)


def settings(unit: Path) -> dict[str, list[str]]:
    """The settings of a unit, each with its values in order."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def seconds(value: str) -> float:
    """A plain number of systemd's, as these units write them."""
    assert re.fullmatch(r"\d+", value), value
    return float(value)


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def systemd_version() -> int:
    return int(analyze("--version").stdout.split()[1])


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units as on a host that has the program, a named instance among them, and the drop-in in force."""
    directory, program = tmp_path / "units", tmp_path / "acklast"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    shutil.copytree(UNITS, directory)
    for path in [*directory.glob("*.service"), *directory.glob("*.d/*.conf")]:
        path.write_text(path.read_text().replace(INSTALLED, str(program)))
    (directory / "acklast@.service").rename(directory / "acklast@mail.service")
    return directory


def complaints(directory: Path) -> list[str]:
    """What ``systemd-analyze verify`` has against these units, beside keys of a newer systemd."""
    done = analyze("verify", "--man=no", *directory.glob("*.service"), *directory.glob("*.timer"))
    newer = () if systemd_version() >= 254 else SINCE_254
    said = done.stderr.splitlines() + done.stdout.splitlines()
    return [line for line in said if not any(f"'{key}'" in line for key in newer)]


@needs_analyze
def test_systemd_takes_every_unit_and_the_drop_in(installed: Path) -> None:
    assert complaints(installed) == []


@needs_analyze
def test_a_wrong_setting_is_seen(installed: Path) -> None:
    unit = installed / "acklast.service"
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=gently"))
    assert any("gently" in line for line in complaints(installed))


def exposure(unit: Path) -> float:
    done = analyze("security", "--offline=true", "--no-pager", unit)
    [found] = re.findall(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    return float(found)


@needs_analyze
@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_every_service_is_shut_in(unit: Path) -> None:
    assert exposure(unit) <= 1.5


@needs_analyze
def test_an_open_service_is_seen(tmp_path: Path) -> None:
    unit = tmp_path / "acklast.service"
    unit.write_text((UNITS / "acklast.service").read_text().replace("RestrictNamespaces=yes", ""))
    assert exposure(unit) > 1.5


def test_who_is_not_root_is_told_that_no_systemd_can_be_booted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert why_not() == "only root can boot a systemd in a container"


def test_who_lacks_the_programs_is_told_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    assert "package systemd-container" in why_not().replace("packages", "package")


def test_what_boots_a_systemd_is_not_installed_where_that_is_forbidden_and_that_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(need, "_on_path", lambda program: None)
    monkeypatch.setattr(need, "_installed_python", lambda: None)
    monkeypatch.setenv("ACKLAST_DEV_INSTALL", "0")
    assert need.have_booted() == 0
    said = capsys.readouterr().err
    assert "systemd-nspawn is missing" in said
    assert "apt-get install --no-install-recommends systemd-container" in said
    assert "apt-get install --no-install-recommends python3-venv" in said


# --- no drift --------------------------------------------------------------------------------------------


def sandbox(unit: Path) -> str:
    return unit.read_text().partition("# --- sandbox")[2].partition("[Install]")[0].strip()


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_all_have_the_same_sandbox(unit: Path) -> None:
    assert sandbox(unit)
    assert sandbox(unit) == sandbox(UNITS / "acklast.service")


@pytest.mark.parametrize("unit", LASTING, ids=lambda unit: unit.stem)
def test_no_restart_where_none_helps(unit: Path) -> None:
    [listed] = settings(unit)["RestartPreventExitStatus"]
    assert {int(code) for code in listed.split()} == NO_RESTART
    [page] = re.findall(
        r"RestartPreventExitStatus=([\d ]+)", (ROOT / "docs/reference/commands.md").read_text()
    )
    assert page == listed


def test_what_a_restart_may_help_is_not_among_them() -> None:
    assert not NO_RESTART & {Exit.OK, Exit.CUT, Exit.UNAVAILABLE, Exit.SOFTWARE}


@pytest.mark.parametrize("name", ["acklast", "acklast@"])
def test_the_daemon_has_time_for_its_drain(name: str) -> None:
    unit = settings(UNITS / f"{name}.service")
    assert unit["SuccessExitStatus"] == [str(int(Exit.CUT))]
    assert seconds(unit["TimeoutStopSec"][0]) >= Drain().deadline_s + SETTLE_S + 15


@pytest.mark.parametrize("unit", LASTING, ids=lambda unit: unit.stem)
def test_only_the_daemon_can_be_reloaded(unit: Path) -> None:
    """The relay and the scheduler follow nothing: a reload that says it is done would be a lie."""
    reloads = settings(unit).get("ExecReload")
    assert reloads == (["/bin/kill -HUP $MAINPID"] if unit.stem in ("acklast", "acklast@") else None)


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_every_secret_is_a_credential(unit: Path) -> None:
    credentials = dict(one.split(":", 1) for one in settings(unit)["LoadCredential"])
    assert credentials == {name: f"/etc/acklast/{name}" for name in SECRETS}
    kept = (UNITS / "tmpfiles.d/acklast.conf").read_text()
    assert all(re.search(rf"^z {path} +0600 root root", kept, re.MULTILINE) for path in credentials.values())


def test_every_unit_runs_as_the_account_that_is_made() -> None:
    [made] = re.findall(r"^u (\S+) ", (UNITS / "sysusers.d/acklast.conf").read_text(), re.MULTILINE)
    assert {tuple(settings(unit)["User"]) for unit in SERVICES} == {(made,)}


def options_of(words: list[str]) -> tuple[list[str], set[str]]:
    """What of a command line is no option, and which options the command that it names has."""
    command = typer.main.get_command(app)
    while words and isinstance(commands := getattr(command, "commands", None), Mapping):
        command = commands[words.pop(0)]
    return words, {name for one in command.params for name in one.opts}


@pytest.mark.parametrize("unit", [*SERVICES, UNITS / "acklast.service.d/example.conf"], ids=lambda u: u.stem)
def test_every_command_is_one(unit: Path) -> None:
    program, *words = settings(unit)["ExecStart"][-1].split()
    assert program == INSTALLED
    rest, options = options_of(words)
    assert {word for word in rest if word.startswith("--")} <= options


@pytest.mark.parametrize("unit", PLACES, ids=lambda unit: unit.name)
def test_every_line_has_its_reason(unit: Path) -> None:
    """A comment stands above it, or above the lines that it directly follows."""
    for paragraph in re.split(r"\n{2,}", unit.read_text().strip()):
        lines = [line for line in paragraph.splitlines() if not line.startswith("[")]
        told = {"Description", "OnCalendar", "WantedBy", "ExecStart"}
        if lines and not {line.partition("=")[0] for line in lines if line[0] != "#"} <= told:
            assert lines[0].startswith("#"), f"{unit.name}: {lines[0]}"
