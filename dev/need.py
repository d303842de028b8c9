"""Finds the programs that the stack runs, and installs them where that needs no question.

``python -m dev.need`` does both ahead of time; with ``clients`` for what only some tests run, with
``booted`` for what boots a systemd.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dev import npm

_POLICY = Path("/usr/sbin/policy-rc.d")
_SYSTEMD = Path("/run/systemd/system")
_NO_SERVICE = "#!/bin/sh\n# No service starts while the acklast set-up installs a package.\nexit 101\n"
_OFF = {"0", "no", "false"}


class Missing(Exception):  # noqa: N818 - named for what is true, not for being an error
    """A program is not there and could not be installed. The text says how to get it."""


def postgres_bin() -> Path:
    """The directory of the newest ``initdb`` and ``postgres``, installed by apt where missing.

    Raises:
        Missing: not there, and it may not be installed from here.
    """
    return _find_or_install(_installed_postgres, "Postgres", "postgresql", "ACKLAST_LEDGER_DSN")


def rabbitmq_bin() -> Path:
    """The directory of ``rabbitmq-server`` and ``rabbitmqctl``, installed by apt where missing.

    Raises:
        Missing: not there, and it may not be installed from here.
    """
    return _find_or_install(_installed_rabbitmq, "RabbitMQ", "rabbitmq-server", "ACKLAST_BROKER_URL")


def redis_server() -> Path:
    """``redis-server``, which one benchmark wants, installed by apt where missing.

    Raises:
        Missing: not there, and it may not be installed from here.
    """
    return _find_or_install(lambda: _on_path("redis-server"), "Redis", "redis-server", "BENCH_REDIS_URL")


def openssl() -> Path:
    """``openssl``, which makes certificates, installed by apt where missing.

    Raises:
        Missing: not there, and it may not be installed from here.
    """
    return _find_or_install(lambda: _on_path("openssl"), "OpenSSL", "openssl")


def debootstrap() -> Path:
    """``debootstrap``, which builds the root directory of a newer broker, installed by apt where missing.

    Raises:
        Missing: not there, and it may not be installed from here.
    """
    return _find_or_install(lambda: _on_path("debootstrap"), "debootstrap", "debootstrap")


def systemd_nspawn() -> Path:
    """``systemd-nspawn``, which boots a systemd in a container, installed by apt where missing.

    Raises:
        Missing: not there, and it may not be installed from here.
    """
    return _find_or_install(lambda: _on_path("systemd-nspawn"), "systemd-nspawn", "systemd-container")


def system_python() -> Path:
    """The distribution's own Python, with what makes virtual environments, installed by apt where missing.

    Raises:
        Missing: not there, and it may not be installed from here.
    """
    return _find_or_install(_installed_python, "Debian's Python with venv", "python3-venv")


def _installed_python() -> Path | None:
    python = Path("/usr/bin/python3")
    return python if python.exists() and _quietly([str(python), "-c", "import ensurepip"]) == 0 else None


def amqp_publish() -> Path:
    """``amqp-publish``, the command-line publisher that one test runs, installed by apt where missing.

    Raises:
        Missing: not there, and it may not be installed from here.
    """
    return _find_or_install(lambda: _on_path("amqp-publish"), "amqp-publish", "amqp-tools")


def java_client() -> Path:
    """RabbitMQ's client for Java, which one test runs where there is a Java, installed by apt where missing.

    Raises:
        Missing: not there, and it may not be installed from here.
    """
    return _find_or_install(installed_java_client, "RabbitMQ's client for Java", "librabbitmq-client-java")


def promtool() -> Path:
    """``promtool``, which tests the alert rules, installed by apt with Prometheus where missing.

    Raises:
        Missing: not there, and it may not be installed from here.
    """
    return _find_or_install(lambda: _on_path("promtool"), "promtool", "prometheus")


def installed_java_client() -> Path | None:
    """The client's jar, beside which its own needs lie."""
    jar = Path("/usr/share/java/amqp-client.jar")
    return jar if jar.exists() else None


def epmd() -> Path:
    """The Erlang port mapper that comes with the Erlang that RabbitMQ runs on.

    Raises:
        Missing: no Erlang found.
    """
    found = shutil.which("epmd")
    if found:
        return Path(found)
    for candidate in sorted(Path("/usr/lib/erlang").glob("erts-*/bin/epmd"), reverse=True):
        return candidate
    raise Missing("epmd is missing: it comes with Erlang. Install Erlang, or put its bin directory on PATH.")


def _installed_postgres() -> Path | None:
    def version(path: Path) -> float:
        found = re.search(r"/(\d+(?:\.\d+)?)/bin$", str(path))
        return float(found[1]) if found else 0.0

    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version, reverse=True)
    on_path = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    for directory in [*packaged, *on_path]:
        if all((directory / name).exists() for name in ("initdb", "postgres", "psql")):
            return directory
    return None


def _installed_rabbitmq() -> Path | None:
    # Debian's /usr/sbin/rabbitmq-server changes user and directory, so the programs beneath it are called.
    places = [Path("/usr/lib/rabbitmq/bin"), *Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin")]
    if found := shutil.which("rabbitmq-server"):
        places.append(Path(found).resolve().parent)
    for directory in places:
        if directory != Path("/usr/sbin") and (directory / "rabbitmq-server").exists():
            return directory
    return None


def _on_path(program: str) -> Path | None:
    return Path(found) if (found := shutil.which(program)) else None


def _find_or_install(find: Callable[[], Path | None], name: str, package: str, variable: str = "") -> Path:
    if found := find():
        return found
    problem = _apt_install(package)
    if found := find():
        return found
    other = (
        f",\nor point {variable} at a running one (compose.yaml starts one with Docker)" if variable else ""
    )
    raise Missing(
        f"{name} is missing and {problem}.\n"
        f"Install it (Debian, Ubuntu: sudo apt-get install --no-install-recommends {package}){other}."
    )


def _apt_install(package: str) -> str:
    """Install ``package`` without starting its service. Gives why it could not, or that it found nothing."""
    if _forbidden():
        return "ACKLAST_DEV_INSTALL forbids to install it"
    if shutil.which("apt-get") is None:
        return "there is no apt-get to install it with"
    prefix = _as_root()
    if prefix is None:
        return "only root can install it (sudo asks for a password here)"
    print(f"installing {package} with apt-get (ACKLAST_DEV_INSTALL=0 forbids it)", flush=True)  # noqa: T201
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
    with _no_service_starts(prefix):
        if _apt(prefix, install) != 0:
            _apt(prefix, ["apt-get", "update", "-q"])
            _apt(prefix, install)
    if _SYSTEMD.is_dir():
        # Nor may it start at the next boot: the machine's owner asked for tests, not for a service.
        _quietly([*prefix, "systemctl", "disable", "--quiet", package])
    return "apt-get could not install it"


def _as_root() -> list[str] | None:
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    return ["sudo", "-n"] if _quietly(["sudo", "-n", "true"]) == 0 else None


def _quietly(command: list[str]) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


def _apt(prefix: list[str], command: list[str]) -> int:
    return subprocess.run(
        [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", *command], stdin=subprocess.DEVNULL, check=False
    ).returncode


@contextmanager
def _no_service_starts(prefix: list[str]) -> Iterator[None]:
    """Keep a freshly installed package's service from starting: only its programs are wanted.

    Debian asks policy-rc.d before it starts a service. Where the machine has one already, that one decides.
    """
    if _POLICY.exists():
        yield
        return
    write = f"cat > {_POLICY} && chmod 755 {_POLICY}"
    subprocess.run([*prefix, "sh", "-c", write], input=_NO_SERVICE, text=True, check=True)
    try:
        yield
    finally:
        _quietly([*prefix, "rm", "-f", str(_POLICY)])


def main() -> int:
    """Have what the stack will run at hand, before a test's time limit begins to run."""
    wanted: list[Callable[[], Path]] = []
    if not os.environ.get("ACKLAST_LEDGER_DSN"):
        wanted += [postgres_bin]
    if not os.environ.get("ACKLAST_BROKER_URL"):
        wanted += [rabbitmq_bin, epmd, openssl]
    return 69 if sum(_complain(find) for find in wanted) else 0


def have_clients() -> int:
    """Have at hand what only some tests run, which are skipped without it: that is no error."""
    _complain(amqp_publish)
    _complain(promtool)
    if shutil.which("java"):
        _complain(java_client)
    if problem := _npm_install():
        print(f"no tests of Node's publishers: {problem}", file=sys.stderr)  # noqa: T201 - the program's output
    return 0


def have_booted() -> int:
    """Have at hand what boots a systemd in a container. Without it those tests are skipped: no error."""
    if os.geteuid() == 0:
        _complain(systemd_nspawn)
        _complain(system_python)
    return 0


def _npm_install() -> str:
    return (
        "ACKLAST_DEV_INSTALL forbids to install them"
        if _forbidden() and not npm.installed()
        else npm.install()
    )


def _forbidden() -> bool:
    return os.environ.get("ACKLAST_DEV_INSTALL", "").lower() in _OFF


def _complain(find: Callable[[], Path]) -> bool:
    """Whether a program is missing; says so, and goes on to the next."""
    try:
        find()
    except Missing as problem:
        print(problem, file=sys.stderr)  # noqa: T201 - the program's output
        return True
    return False


if __name__ == "__main__":
    wanted = {"clients": have_clients, "booted": have_booted}
    sys.exit(wanted[sys.argv[1]]() if sys.argv[1:] else main())
