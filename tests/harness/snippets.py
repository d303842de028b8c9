"""The programs in a page of the documentation, and how each of them is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dev import need, npm

_DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = _DOCS / "how-to" / "publish-from-any-language.md"
CONTRACT: Final = _DOCS / "reference" / "contract.md"
_BLOCK: Final = re.compile(
    r"^```(?:js|java|python|sh|sql)\n((?:#|//|--) (\S+)\n.*?)^```$", re.MULTILINE | re.DOTALL
)
_LIMIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """One program's end."""

    code: int
    out: str
    err: str


def programs(page: Path = PAGE) -> dict[str, str]:
    """The text of each program by the file name in its first line."""
    return {name: text for text, name in _BLOCK.findall(page.read_text(encoding="utf-8"))}


def missing(name: str) -> str:
    """What a program needs and is not here; nothing where all is."""
    match Path(name).suffix:
        case ".mjs" if npm.installed() is None:
            return "node with amqplib (npm), which 'make clients' installs where node is"
        case ".java" if shutil.which("java") is None or need.installed_java_client() is None:
            return "java with amqp-client, of the Debian package librabbitmq-client-java"
        case ".sh" if shutil.which("amqp-publish") is None:
            return "amqp-publish, of the Debian package amqp-tools"
        case ".sql" if _psql() is None:
            return "psql, of the Debian package postgresql-client"
        case _:
            return ""


def run(texts: Mapping[str, str], directory: Path, env: Mapping[str, str]) -> dict[str, Ended]:
    """Run those of the programs that can be run here, some at a time, with this in their environment."""
    if (node := npm.installed()) and not (directory / "node_modules").exists():
        (directory / "node_modules").symlink_to(node / "node_modules")
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    able = [name for name in texts if not missing(name)]
    with ThreadPoolExecutor(3) as threads:
        return dict(zip(able, threads.map(lambda name: _run(directory / name, env), able), strict=True))


def _run(file: Path, env: Mapping[str, str]) -> Ended:
    done = subprocess.run(
        _command(file, env),
        cwd=file.parent,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def _command(file: Path, env: Mapping[str, str]) -> list[str]:
    match file.suffix:
        case ".mjs":
            return ["node", file.name]
        case ".py":
            return [sys.executable, file.name]
        case ".java":
            # The quick compiler alone: the program is over before the other one had been of use.
            return ["java", "-XX:TieredStopAtLevel=1", "-cp", _java_path(), file.name]
        case ".sh":
            return ["sh", file.name]
        case ".sql":
            return [str(_psql()), env["LEDGER_DSN"], "-v", "ON_ERROR_STOP=1", "-q", "-f", file.name]
        case _:
            raise AssertionError(f"no program is known that runs {file.name}")


def _java_path() -> str:
    jar = need.installed_java_client()
    assert jar is not None
    # The logging interface that the client is built on, and an implementation that says nothing.
    return os.pathsep.join(str(jar.with_name(name)) for name in (jar.name, "slf4j-api.jar", "slf4j-nop.jar"))


def _psql() -> Path | None:
    if found := shutil.which("psql"):
        return Path(found)
    try:
        return need.postgres_bin() / "psql"
    except need.Missing:
        return None
