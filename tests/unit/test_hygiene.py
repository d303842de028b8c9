"""What a reader should never meet in this repository, whoever wrote the line and however late it was."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (".ci", "bench", "daemon", "dev", "docs", "examples", "systemd", "tests", "topology")
MAX_LINES = 400
MAX_FUNCTION_LINES = 60

# Each pattern is put together from two halves, so that this file does not hold what it looks for.
NEVER = {
    "a package registry's host": "pypi" + r"\.org|python" + r"hosted|debian" + r"\.org|npm" + r"js\.org",
    "a path of somebody's machine": "/wo" + r"rk/|/ro" + r"ot/\.|/Us" + r"ers/\w",
    "an unfinished mark": r"\bTO"
    + r"DO\b|\bFIX"
    + r"ME\b|\bX"
    + r"XX\b|NotImplemented"
    + "Error|no "
    + "cover",
}
SLEEP = re.compile(r"\b(?:time|asyncio)\.sle" + r"ep\((?!0\))|from (?:time|asyncio) import .*\bsle" + r"ep\b")


def files() -> Iterator[Path]:
    """Every text file of the repository."""
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    beside = (path for path in ROOT.iterdir() if path.name != ".git")
    for path in (*beside, *below):
        if path.is_file() and "__pycache__" not in path.parts and _is_text(path):
            yield path


def _is_text(path: Path) -> bool:
    try:
        path.read_text()
    except UnicodeDecodeError:
        return False
    return True


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def long_functions(source: str, limit: int = MAX_FUNCTION_LINES) -> list[str]:
    """The functions of ``source`` that are longer than ``limit`` lines, with their length."""
    sizes = {
        f"{node.name} at {node.lineno}": (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return [f"{name}: {size} lines" for name, size in sizes.items() if size > limit]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("what", NEVER)
def test_no_file_holds(what: str) -> None:
    pattern = re.compile(NEVER[what])
    assert [name(path) for path in files() if pattern.search(path.read_text())] == []


def test_tests_wait_for_what_they_need_and_never_for_a_time() -> None:
    assert [name(path) for path in sources("tests") if SLEEP.search(path.read_text())] == []


@pytest.mark.parametrize(
    "line", ["time.sle" + "ep(1)", "await asyncio.sle" + "ep(0.1)", "from time import sle" + "ep"]
)
def test_a_sleep_is_seen(line: str) -> None:
    assert SLEEP.search(line)


def test_giving_way_once_is_no_sleep() -> None:
    assert not SLEEP.search("await asyncio.sle" + "ep(0)")


def test_modules_stay_readable_in_one_sitting() -> None:
    long = [
        path for path in sources("daemon", "topology", "dev", "examples", "bench") if _lines(path) > MAX_LINES
    ]
    assert [f"{name(path)}: {_lines(path)} lines" for path in long] == []


def _lines(path: Path) -> int:
    return path.read_text().count("\n")


def test_functions_stay_on_one_screen() -> None:
    code = sources("daemon", "topology", "dev", "examples", "bench")
    long = {name(path): found for path in code if (found := long_functions(path.read_text()))}
    assert long == {}


def test_a_long_function_is_seen() -> None:
    body = "    pass\n" * 3
    assert long_functions(f"class A:\n  async def f():\n{body}", limit=3) == ["f at 2: 4 lines"]


@pytest.mark.parametrize("folder", ["daemon", "topology", "tests"])
def test_a_source_root_is_no_package(folder: str) -> None:
    """The import names `daemon`, `topology` and `tests` are not ours to claim."""
    assert not (ROOT / folder / "__init__.py").exists()


def test_no_module_is_a_drawer_for_anything() -> None:
    drawers = {"utils.py", "util.py", "helpers.py", "misc.py", "common.py"}
    code = sources("daemon", "topology", "dev", "tests", "examples", "bench")
    assert [name(path) for path in code if path.name in drawers] == []


def test_a_host_installs_the_versions_that_are_tested() -> None:
    pin = re.compile(r"^([a-z0-9-]+)==(\S+) \\$", re.MULTILINE)
    tested = dict(pin.findall((ROOT / "requirements.lock").read_text()))
    installed = dict(pin.findall((ROOT / "requirements-daemon.lock").read_text()))
    assert {"aio-pika", "asyncpg", "hatchling"} <= set(installed)
    assert {name for name, version in installed.items() if tested.get(name) != version} == set()
    assert not {"pytest", "mypy"} & set(installed)
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["sdist"]
    assert {"requirements-daemon.lock", "systemd"} <= set(about["include"])  # what the page on installing has


@pytest.mark.parametrize("file", ["requirements.lock", "requirements-daemon.lock", "requirements-bench.lock"])
def test_a_lock_names_nothing_of_where_it_was_made(file: str) -> None:
    lock = (ROOT / file).read_text()
    pins = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert pins
    assert [line for line in pins if not re.fullmatch(r"[a-z0-9-]+==\S+ \\", line)] == []
    assert not re.search(r"--(?:extra-)?index-url|--find-links|--trusted-host|file://|https?:", lock)


def test_the_lock_of_nodes_packages_names_digests_and_no_place() -> None:
    lock = json.loads((ROOT / "tests" / "javascript" / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all(package["integrity"].startswith("sha512-") for package in packages)
    assert not any("resolved" in package for package in packages)
