"""Newer brokers than this machine's, each in a root directory of its own: built once, and run from there.

As a program, from the root of the repository:

    python -m dev.brokers build             build what is missing
    python -m dev.brokers test ARGUMENTS    the tests that talk to a broker, on each; pytest's arguments

They are Debian's packages of a newer release, laid down by debootstrap below $ACKLAST_BROKERS, by default
``~/.cache/acklast/brokers``: 400 MB and a minute or two each. Remove a directory to have it built anew.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

from dev import need
from dev.need import Missing
from dev.rabbitmq import ROOT

SUITES: Final = {"trixie": "4.0", "sid": "4.3"}
"""Debian's releases, and the RabbitMQ that was in each when the tests were last seen to pass."""
PLACE: Final = "ACKLAST_BROKERS"
MIRROR: Final = "ACKLAST_DEBIAN_MIRROR"

_APT: Final = (
    # What a mirror has of an older day is as good for tests.
    'Acquire::Check-Valid-Until "false";\nAPT::Install-Recommends "false";\nAcquire::Languages "none";\n'
)
_NO_SERVICE: Final = "#!/bin/sh\nexit 101\n"


def place(env: Mapping[str, str] = os.environ) -> Path:
    """Where the root directories are."""
    if given := env.get(PLACE):
        return Path(given).absolute()
    cache = env.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "acklast" / "brokers"


def built(suite: str) -> Path:
    """The root directory of one suite, built where it is missing.

    Raises:
        Missing: it cannot be built here; the text says what is missing.
    """
    root = place() / suite
    if _version(root):
        return root
    _require_root()
    need.debootstrap()
    with _alone(root):
        if not _version(root):
            _build(suite, root)
    return root


def _version(root: Path) -> str:
    """The RabbitMQ in a root directory; empty where there is none."""
    for found in root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"):
        return found.name.removeprefix("rabbitmq_server-")
    return ""


def _require_root() -> None:
    if os.geteuid() != 0:
        raise Missing(
            "Other versions of RabbitMQ run from root directories of their own, which only root may build "
            "and enter: run this as root, or leave it to CI. `make test` runs on this machine's RabbitMQ."
        )
    for program in ("unshare", "chroot"):
        if shutil.which(program) is None:
            raise Missing(f"{program} is missing: install util-linux and coreutils.")


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """One build of a root directory at a time, whoever asks for it."""
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(suite: str, root: Path) -> None:
    """Build beside its place, and move it there when it is whole."""
    part = root.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    log = root.with_suffix(".log")
    _say(f"building RabbitMQ of Debian {suite} in {root}; see {log}")
    with log.open("w") as output:
        _logged(output.fileno(), "debootstrap", "--variant=minbase", suite, str(part), _mirror())
        _furnish(part)
        install = ("apt-get", "install", "-y", "-q", "rabbitmq-server")
        _logged(output.fileno(), "chroot", str(part), "env", "DEBIAN_FRONTEND=noninteractive", *install)
        _logged(output.fileno(), "chroot", str(part), "apt-get", "clean")
    part.rename(root)


def _furnish(root: Path) -> None:
    """What the minimal system lacks: names, this machine's way to the mirror, and no service that starts."""
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    dump = subprocess.run(
        ["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True
    ).stdout
    proxies = [line for line in dump.splitlines() if re.match(r"Acquire::\w+::Proxy", line)]
    (root / "etc" / "apt" / "apt.conf.d" / "99acklast").write_text(_APT + "\n".join([*proxies, ""]))
    policy = root / "usr" / "sbin" / "policy-rc.d"
    policy.write_text(_NO_SERVICE)
    policy.chmod(0o755)


def _mirror() -> str:
    """The Debian mirror that this machine's apt uses.

    Raises:
        Missing: it uses none.
    """
    if given := os.environ.get(MIRROR):
        return given
    ask = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"]
    for line in subprocess.run(ask, capture_output=True, text=True, check=False).stdout.splitlines():
        if line.startswith("Debian|Debian|"):
            return line.rpartition("|")[2]
    raise Missing(f"apt knows no mirror of Debian here: set {MIRROR} to the address of one.")


def _logged(output: int, *command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
    if done.returncode != 0:
        raise Missing(f"`{' '.join(command)}` ended with {done.returncode}: its log says why.")


def all_built() -> dict[str, Path]:
    """Every suite's root directory; those that are missing are built side by side.

    Raises:
        Missing: one cannot be built here.
    """
    with ThreadPoolExecutor(len(SUITES)) as threads:
        return dict(zip(SUITES, threads.map(built, SUITES), strict=True))


def test(arguments: Sequence[str]) -> int:
    """Run the tests that talk to a broker on each version; the first exit code that is not 0."""
    codes = [_test_on(suite, root, arguments) for suite, root in all_built().items()]
    return next(filter(None, codes), 0)


def _test_on(suite: str, root: Path, arguments: Sequence[str]) -> int:
    _say(f"testing on RabbitMQ {_version(root)} of Debian {suite}")
    begun = monotonic()
    command = [sys.executable, "-m", "pytest", "-m", "broker and not soak and not booted", *arguments]
    code = subprocess.run(command, env={**os.environ, ROOT: str(root)}, check=False).returncode
    _say(f"RabbitMQ {_version(root)}: exit {code} after {monotonic() - begun:.0f} s")
    return code


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a program's progress


def main(argv: Sequence[str]) -> int:
    try:
        match argv:
            case ["build"]:
                for suite, root in all_built().items():
                    _say(f"RabbitMQ {_version(root)} of Debian {suite}: {root}")
                return 0
            case ["test", *arguments]:
                return test(arguments)
            case _:
                _say(__doc__ or "")
                return 64
    except Missing as problem:
        _say(str(problem))
        return 69


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
