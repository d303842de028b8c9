"""The page on installing, tried as it stands: its commands, in order, on a Debian that has nothing of ours.

The container has a network of its own, which leads nowhere. So what needs one is done otherwise here: the
packages of Debian are installed already, and their servers set up as their packages do it; pip finds what
was fetched before, with the hashes of the lock.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import pytest

from acklast import __version__
from dev import need
from dev.nspawn import Machine, machine, why_not
from harness import eventually

TREE: Final = Path(__file__).parents[2]
PAGE: Final = TREE / "docs/how-to/install.md"
LOCK: Final = TREE / "requirements-daemon.lock"
SOURCE: Final = "/usr/src/acklast"
WHEELS: Final = "/srv/wheels"
_HEADING: Final = re.compile(r"^## (.+)$")
_STEP_S: Final = 600.0
# As their packages leave them on a Debian that had none.
_SET_UP: Final = """\
dpkg -s python3-venv postgresql rabbitmq-server > /dev/null
pg_createcluster "$(ls /usr/lib/postgresql | sort -V | tail -n 1)" main
systemctl daemon-reload
systemctl start postgresql.service rabbitmq-server.service
"""
_ENV: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": WHEELS,
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


def steps(page: str) -> dict[str, list[str]]:
    """The shell blocks of a page, under their headings, in order."""
    found: dict[str, list[str]] = {}
    heading = ""
    block: list[str] | None = None
    for line in page.splitlines():
        if block is None and (titled := _HEADING.match(line)):
            heading = titled[1]
        elif line == "```sh":
            block = []
        elif line == "```" and block is not None:
            found.setdefault(heading, []).append("\n".join(block) + "\n")
            block = None
        elif block is not None:
            block.append(line)
    return found


class Shell:
    """One root shell in the container, as somebody has it open who reads the page."""

    def __init__(self, host: Machine, log: Path) -> None:
        self._host = host
        self._log = log
        self._steps = 0

    def __enter__(self) -> Self:
        # The step has no standard input, or it would read what is to be done next.
        loop = 'set -euo pipefail; while read -r step; do . "$step" < /dev/null; echo "::done $step"; done'
        env = [f"{name}={value}" for name, value in _ENV.items()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._host.enter, "env", "-i", *env, "bash", "-c", loop],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    async def does(self, block: str) -> str:
        """What a block prints; it has to succeed."""
        self._steps += 1
        step, before = f"/run/step-{self._steps}", self._log.stat().st_size
        self._host.must("bash", "-c", 'printf %s "$2" > "$1"', "-", step, block)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{step}\n".encode())
        self._process.stdin.flush()

        def said() -> str:
            return self._log.read_bytes()[before:].decode(errors="replace")

        def ended() -> bool:
            failed = self._process.poll() is not None
            assert not failed, f"{block}\n--- ended the shell. It said:\n{said()}"
            return f"::done {step}" in said()

        await eventually(ended, _STEP_S, block)
        return said()


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Machine]:
    """A host that has nothing of ours but a clone, and nothing in its servers."""
    if why := why_not():
        pytest.skip(why)
    wheels = fetched(tmp_path / "wheels")
    with machine(alone=True) as made:
        made.binds = {str(wheels): WHEELS}
        (made.root / WHEELS.lstrip("/")).mkdir()
        clone(made.root / SOURCE.lstrip("/"))
        for gone in ("etc/postgresql", "var/lib/postgresql", "var/lib/rabbitmq/mnesia"):
            for path in (made.root / gone).glob("*"):
                shutil.rmtree(path)
        (made.root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
        with (made.root / "etc/hosts").open("a") as hosts:
            hosts.write(f"127.0.1.1 {made.name}\n")  # as Debian's installer does
        made.boot()
        yield made


def fetched(wheels: Path) -> Path:
    """What the lock names, for Debian's Python."""
    python = need.system_python()
    said = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout
    version = ".".join(said.split()[1].split(".")[:2])
    asked = ["--only-binary", ":all:", "--python-version", version, "-d", str(wheels)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-qq", "--require-hashes", "-r", LOCK, *asked],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"the packages of {LOCK.name} cannot be had here: {done.stderr[-500:]}")
    return wheels


def clone(there: Path) -> None:
    """What git knows of this tree, as it is now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TREE, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (TREE / name).exists():
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TREE / name, there / name)


@pytest.mark.timeout(1200)  # on a busy machine; a quiet one takes two minutes
async def test_the_page_leads_from_nothing_to_a_job_that_is_done_and_back(
    bare: Machine, tmp_path: Path
) -> None:
    page = steps(PAGE.read_text(encoding="utf-8"))
    [apt] = page.pop("Packages")
    assert all(line.startswith("apt-get ") for line in apt.splitlines())
    said: dict[str, str] = {}
    with Shell(bare, tmp_path / "shell.log") as shell:
        await shell.does(_SET_UP)
        for heading, blocks in page.items():
            before_the_end(bare, heading)
            said[heading] = "".join([await shell.does(block) for block in blocks])
    assert f"{__version__}\n" in said["The program"]
    assert 'Status: "consuming 1 lanes"' in said["Start"]
    assert "hello, world" in said["The first jobs"]
    assert "greetings" in said["The first jobs"].partition("first:world")[2]
    assert "daemon.ready" in said["Logs"]
    left = ("/opt/acklast", "/etc/acklast", "/var/lib/acklast", "/etc/systemd/system/acklast.service")
    assert [path for path in left if (bare.root / path.lstrip("/")).exists()] == []
    assert "acklast" not in bare.must("rabbitmqctl", "list_vhosts")
    assert bare.run("id", "acklast").returncode != 0


def before_the_end(host: Machine, heading: str) -> None:
    """What is to be so before a part of the page begins."""
    match heading:
        case "Upgrade" | "Uninstall":
            assert host.must("systemctl", "is-enabled", "acklast.service") == "enabled\n"
            shown = host.show("acklast.service")
            assert (shown["ActiveState"], shown["NRestarts"]) == ("active", "0")
            secrets = [host.root / "etc/acklast" / name for name in ("broker-url", "ledger-dsn", "owner-dsn")]
            assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}
        case _:
            pass
