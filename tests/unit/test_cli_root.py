"""Every way a command can end: its exit code, its lines on standard error, and no traceback for an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from acklast import __version__
from acklast.cli import check
from acklast.cli.exits import MEANINGS, epilog
from acklast.cli.root import run
from acklast.errors import Exit, LedgerUnavailable
from acklast_topology.finding import Finding, Found, missing

Capture = pytest.CaptureFixture[str]
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("ACKLAST")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def configured(*_: object) -> None:
        raise error

    monkeypatch.setattr(check, "configured", configured)


def test_the_version_is_told(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"acklast {__version__}\n"
    assert run(["--version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": __version__}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "error: Missing command.\n  See acklast --help\n"),
        (["jobs"], "error: Missing command.\n  See acklast jobs --help\n"),
        (["jobs", "show"], "error: Missing argument 'key'.\n  See acklast jobs show --help\n"),
        (["--json", "check"], '"what": "--json belongs behind the command."'),
        (["chekc"], "chekc"),
        (["check", "--nonsense"], "--nonsense"),
    ],
)
def test_a_wrong_command_line_is_told_in_two_lines(capsys: Capture, arguments: list[str], told: str) -> None:
    assert run(arguments) == Exit.USAGE
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert told in err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--key", "{run}"], "'{run}' names no field of the row"),
        (["--key", "{id.x}"], "plain field names"),
        (["--key", "{id}", "--deadline", "tomorrow"], "must be a time like"),
        (["--key", "{id}", "--deadline", "2040-01-01T00:00:00"], "must have an offset"),
        (["--key", "{id}", "--deadline", "2001-01-01T00:00:00Z"], "lies in the past"),
        (["--key", "{id}", "--on-error", "pray"], "'stop', 'skip'"),
    ],
)
def test_a_wrong_option_of_enqueue_is_a_usage_error(
    capsys: Capture, tmp_path: Path, options: list[str], told: str
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("id\n1\n")
    assert run(["enqueue", "cleanup", str(file), "--run", "r1", *options]) == Exit.USAGE
    assert told in capsys.readouterr().err


def test_a_file_that_is_not_there_is_a_usage_error(capsys: Capture) -> None:
    code = run(["enqueue", "cleanup", "none.csv", "--run", "r1", "--key", "{id}"])
    assert code == Exit.USAGE
    assert "none.csv" in capsys.readouterr().err


def test_a_file_of_another_kind_is_a_data_error(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "rows.xlsx"
    file.write_bytes(b"PK")
    assert run(["enqueue", "cleanup", str(file), "--run", "r1", "--key", "{id}"]) == Exit.DATA
    assert "Name it .csv or .jsonl" in capsys.readouterr().err


def test_an_error_is_two_lines_and_its_exit_code(capsys: Capture) -> None:
    assert run(["topology", "plan"]) == Exit.CONFIG
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: there is no configuration file ")
    assert lines[1:] == ["  Name it with --config or ACKLAST_CONFIG"]


def test_an_error_is_one_json_document_where_that_is_asked_for(capsys: Capture) -> None:
    assert run(["topology", "plan", "--json"]) == Exit.CONFIG
    captured = capsys.readouterr()
    assert captured.out == ""
    error = json.loads(captured.err)["error"]
    assert error["what"].startswith("there is no configuration file ")
    assert error["remedy"] == "Name it with --config or ACKLAST_CONFIG"
    assert error["exit"] == 78


def test_the_environment_names_the_configuration(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKLAST_CONFIG", "elsewhere.toml")
    assert run(["topology", "plan"]) == Exit.CONFIG
    assert "elsewhere.toml" in capsys.readouterr().err


def test_an_error_from_a_server_has_its_own_code(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(path: Path) -> list[check.Checked]:
        raise LedgerUnavailable("the ledger does not answer", "Start it")

    monkeypatch.setattr(check, "_all", failing)
    assert run(["check"]) == Exit.UNAVAILABLE
    assert capsys.readouterr().err == "error: the ledger does not answer\n  Start it\n"


def test_ctrl_c_is_no_traceback(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    assert run(["check"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n  What was done stays done\n"


def test_a_defect_is_told_as_one_with_its_traceback(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ZeroDivisionError("a defect"))
    assert run(["check"]) == Exit.SOFTWARE
    err = capsys.readouterr().err
    assert "ZeroDivisionError: a defect" in err
    assert "please report it" in err


def test_a_defect_quotes_no_value_that_it_met(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyError("planted-4711"))
    assert run(["check"]) == Exit.SOFTWARE
    err = capsys.readouterr().err
    assert "in configured\n" in err
    assert "\nKeyError\n" in err
    assert "planted-4711" not in err


def test_a_reader_that_went_away_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "acklast", "--version"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("--version >/dev/full", Exit.OUTPUT, "standard output cannot be written: No space left on device"),
        ("--version >&-", Exit.OUTPUT, "standard output cannot be written: Bad file descriptor"),
        ("nonsense 2>/dev/full", Exit.USAGE, ""),
        ("nonsense >&- 2>&- <&-", Exit.USAGE, ""),
    ],
)
def test_a_stream_that_takes_nothing_is_no_traceback(how: str, code: Exit, said: str) -> None:
    command = ["sh", "-c", f'exec "$0" -m acklast {how}', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("missing", ["typer", "pydantic", "asyncpg", "structlog"])
def test_a_base_install_says_what_to_install(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from acklast.cli import main; main()"
    command = [sys.executable, "-c", program, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == Exit.CONFIG
    assert done.stderr.splitlines() == [
        f"error: the command needs {missing}, which is not installed",
        '  Install it with the daemon: pip install "acklast[daemon]"',
    ]


# --- the words about exit codes ----------------------------------------------------------------------


def test_every_exit_code_has_its_meaning_in_the_help(capsys: Capture) -> None:
    assert set(MEANINGS) == set(Exit)
    assert run(["--help"]) == 0
    told = capsys.readouterr().out
    for code in Exit:
        assert f"{code.value:>3}  " in told
    assert f"{Exit.CUT.value:>3}  " not in epilog(Exit.UNFIT)


def test_a_command_tells_of_itself_alone_what_is_incomplete(capsys: Capture) -> None:
    assert run(["runs", "watch", "--help"]) == 0
    told = capsys.readouterr().out
    assert "  2  some jobs are dead, unresolved or cancelled" in told
    assert "enqueue" not in told


def test_every_exit_code_is_in_the_reference() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    for code in Exit:
        assert f"| {code.value} | `{code.name}` |" in text


def test_what_has_one_remedy_is_one_line() -> None:
    gone = [missing("queue", "a"), missing("exchange", "b")]
    odd = Finding("queue", "c", Found.DIFFERS, "argument x differs", "Delete c")
    one, other = check.misfits([gone[0], odd, gone[1]])
    assert one.detail == "missing: queue a, exchange b"
    assert "acklast topology apply" in one.remedy
    assert (other.detail, other.remedy) == ("differs: queue c (argument x differs)", "Delete c")


@pytest.mark.parametrize(
    ("exits", "code"),
    [
        ([Exit.OK], Exit.OK),
        ([Exit.OK, Exit.UNFIT], Exit.UNFIT),
        ([Exit.UNFIT, Exit.UNAVAILABLE], Exit.UNAVAILABLE),
        ([Exit.UNFIT, Exit.UNAVAILABLE, Exit.CONFIG], Exit.CONFIG),
    ],
)
def test_a_check_ends_with_what_matters_most(exits: list[Exit], code: Exit) -> None:
    found = [check.Checked("part", one is Exit.OK, "detail", exit=one) for one in exits]
    assert check.verdict(found) is code


def test_a_check_tells_each_problem_of_a_configuration_on_its_line(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "acklast.toml").write_text("odd = 1\nodder = 2\n")
    assert run(["check", "--config", str(tmp_path / "acklast.toml")]) == Exit.CONFIG
    told = capsys.readouterr()
    assert [line for line in told.out.splitlines() if "is not a known key" in line] == [
        "  acklast.toml: odd is not a known key: did you mean 'dead'?",
        "  acklast.toml: odder is not a known key: did you mean 'ledger'?",
    ]
