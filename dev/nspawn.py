"""A real systemd, booted in a container on an overlay of this machine. As root.

Its network is the machine's, unless it is ``alone``. What is written in there goes to memory and is gone at
the end. Nothing of the machine's own systemd is asked for anything: the container is not registered, and runs
in control groups of its own.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from dev.workspace import StackError, last_lines, wait_until

PROGRAM: Final = Path("/opt/acklast")
_PYTHON: Final = "/opt/python"
_NEEDS: Final = "/opt/needs"
_BOOT_S: Final = 60.0
_OFF_S: Final = 90.0
_CGROUPS: Final = Path("/sys/fs/cgroup")
# On the machine's network none of its servers is to run twice.
_SERVERS: Final = [
    "epmd.service",
    "epmd.socket",
    "postgresql.service",
    "prometheus.service",
    "rabbitmq-server.service",
    "redis-server.service",
]
_MASKED: Final = [
    "systemd-timesyncd.service",
    "systemd-networkd.service",
    "systemd-networkd-wait-online.service",
    "NetworkManager.service",
    "NetworkManager-wait-online.service",
]
# Before anything boots the launching shell enters groups of its own. Without that the booted manager would
# take this machine's other processes into its scope; so where it fails, nothing boots. The container ends
# also where the tests are killed outright.
_LAUNCH: Final = """\
set -e
for group in {groups}; do echo $$ > "$group/cgroup.procs"; done
exec setpriv --pdeathsig TERM \
    systemd-nspawn --register=no --keep-unit -D {root} -M {name} --console=pipe {options} \
    --boot systemd.unit=basic.target </dev/null >{log} 2>&1
"""
# The paths of the machine's Python may lie in a home directory, which no sandboxed service sees.
_COMMAND: Final = f"""\
#!/bin/sh
export LD_LIBRARY_PATH={_PYTHON}/lib PYTHONPATH={PROGRAM}/lib:{_NEEDS}
exec {_PYTHON}/bin/{{python}} -m acklast "$@"
"""


def why_not() -> str:
    """Why no systemd can be booted here; nothing where it can."""
    if os.geteuid() != 0:
        return "only root can boot a systemd in a container"
    missing = [name for name in ("systemd-nspawn", "nsenter") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not found (Debian: packages systemd-container and util-linux)"
    if not _hierarchies():
        return f"{_CGROUPS} has no control groups that can be written to"
    return ""


def _hierarchies() -> list[Path]:
    """Where a group of its own has to be made: in each hierarchy that systemd uses."""
    hybrid = [_CGROUPS / name for name in ("systemd", "unified")]
    found = [path for path in hybrid if os.access(path / "cgroup.procs", os.W_OK)]
    return found or [path for path in [_CGROUPS] if os.access(path / "cgroup.procs", os.W_OK)]


class Machine:
    """The booted container. ``root`` is its file system, as this machine sees it.

    One that is ``alone`` has a loopback of its own and no other network, and may run servers. ``newer``: it
    has a newer systemd than this machine.
    """

    def __init__(self, directory: Path, *, alone: bool = False, newer: bool = False) -> None:
        self.name = f"acklast-{token_hex(4)}"
        self.binds = {sys.base_prefix: _PYTHON, sysconfig.get_path("purelib"): _NEEDS}
        """What of this machine's can be read in there, and where."""
        self._alone = alone
        self._newer = newer
        self.root = directory / "fs"
        self._log = directory / "boot.log"
        self._groups = [path / self.name for path in _hierarchies()]
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._pid = 0

    # --- from boot to power off ---------------------------------------------------------------------

    def prepare(self) -> None:
        """Take away what is this machine's own, before the boot."""
        system = self.root / "etc/systemd/system"
        for unit in _MASKED + ([] if self._alone else _SERVERS):
            (system / unit).unlink(missing_ok=True)
            (system / unit).symlink_to("/dev/null")
        for link in (system / "timers.target.wants").glob("*"):
            link.unlink()
        (self.root / "etc/fstab").unlink(missing_ok=True)
        (self.root / "etc/machine-id").unlink(missing_ok=True)
        (self.root / "etc/machine-id").touch()

    def boot(self) -> None:
        """Start it, and wait until its manager answers.

        Raises:
            StackError: it did not boot; with the end of what it said.
        """
        for group in self._groups:
            group.mkdir()
        options = [f"--bind-ro={here}:{there}" for here, there in self.binds.items()]
        script = _LAUNCH.format(
            groups=shlex.join(map(str, self._groups)),
            root=shlex.quote(str(self.root)),
            name=self.name,
            options=shlex.join(["--private-network", *options] if self._alone else options),
            log=shlex.quote(str(self._log)),
        )
        # From 258 on it knows control groups of the second version alone; for these it needs no controllers.
        env = {**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"} if self._newer else None
        self._nspawn = nspawn = subprocess.Popen(["bash", "-c", script], start_new_session=True, env=env)
        up = wait_until(self._is_up, lambda: nspawn.poll() is not None, timeout_s=_BOOT_S)
        if not up:
            raise StackError("the container did not boot", last_lines(self._log))

    def _is_up(self) -> bool:
        self._pid = self._pid or self._manager()
        return self._pid > 0 and self.run("systemctl", "is-active", "basic.target").stdout.strip() == "active"

    def _manager(self) -> int:
        """The process that is number 1 in there."""
        assert self._nspawn is not None
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children")
        for child in children.read_text().split():
            with suppress(OSError):
                [spaces] = [
                    line.split()
                    for line in Path(f"/proc/{child}/status").read_text().splitlines()
                    if line.startswith("NSpid:")
                ]
                if len(spaces) > 2 and spaces[-1] == "1":
                    return int(child)
        return 0

    def power_off(self) -> None:
        """End it as a machine is ended, and take its control groups away."""
        if self._nspawn is not None:
            self._nspawn.terminate()
            try:
                self._nspawn.wait(_OFF_S)
            except subprocess.TimeoutExpired:
                if self._pid:
                    os.kill(self._pid, signal.SIGKILL)
                self._nspawn.kill()
                self._nspawn.wait()
        for group in self._groups:
            for path in sorted(group.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
                with suppress(OSError):
                    path.rmdir()
            with suppress(OSError):
                group.rmdir()

    # --- what is done in it -------------------------------------------------------------------------

    @property
    def enter(self) -> list[str]:
        """What a command begins with that is to run in there, as root."""
        return ["nsenter", "-t", str(self._pid), "-m", "-u", "-i", "-n", "-p", "-C", "--"]

    def run(self, *command: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command in there, as root."""
        return subprocess.run(
            [*self.enter, *command], capture_output=True, text=True, check=False, timeout=timeout_s
        )

    def must(self, *command: str, timeout_s: float = 120) -> str:
        """Run a command that has to succeed; its output.

        Raises:
            StackError: it failed; with what it said.
        """
        done = self.run(*command, timeout_s=timeout_s)
        if done.returncode:
            raise StackError(f"{shlex.join(command)}: exit code {done.returncode}", done.stdout + done.stderr)
        return done.stdout

    def show(self, unit: str) -> Mapping[str, str]:
        """The properties of a unit."""
        lines = self.must("systemctl", "show", unit).splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def journal(self, unit: str) -> list[dict[str, Any]]:
        """The journal's entries of a unit, the first ones first."""
        said = self.must("journalctl", "--no-pager", "-o", "json", "--all", "-u", unit)
        return [json.loads(line) for line in said.splitlines()]


@contextmanager
def machine(system: Path = Path("/"), *, alone: bool = False) -> Iterator[Machine]:
    """A machine that is prepared and not booted yet; gone at the end. ``alone``: ``Machine``.

    ``system``: the root directory of another one than this, which stays as it is too.

    Raises:
        StackError: no overlay can be mounted here.
    """
    directory = Path(tempfile.mkdtemp(prefix="acklast-machine-"))
    _mount("-t", "tmpfs", "-o", "size=2g,mode=755", "tmpfs", str(directory))
    try:
        for name in ("up", "wd", "fs"):
            (directory / name).mkdir()
        layers = f"lowerdir={system},upperdir={directory}/up,workdir={directory}/wd"
        _mount("-t", "overlay", "overlay", "-o", layers, f"{directory}/fs")
        try:
            made = Machine(directory, alone=alone, newer=system != Path("/"))
            made.prepare()
            try:
                yield made
            finally:
                made.power_off()
        finally:
            _unmount(directory / "fs")
    finally:
        _unmount(directory)
        directory.rmdir()


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError("mount failed", done.stderr)


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "--recursive", str(path)], capture_output=True, check=False)


def install(root: Path, tree: Path) -> None:
    """The product, built from this tree, and its units, as the page on systemd has it."""
    with tempfile.TemporaryDirectory() as built:
        wheel = ["wheel", "-qq", "--no-deps", "--no-build-isolation", "-w", built, str(tree)]
        done = subprocess.run(
            [sys.executable, "-m", "pip", *wheel], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise StackError("the product could not be built", done.stderr)
        [file] = Path(built).glob("*.whl")
        shutil.unpack_archive(file, root / "opt/acklast/lib", "zip")
    for place in (_PYTHON, _NEEDS):
        (root / place.lstrip("/")).mkdir(parents=True)
    command = root / "opt/acklast/bin/acklast"
    command.parent.mkdir()
    command.write_text(_COMMAND.format(python=f"python{sysconfig.get_python_version()}"))
    command.chmod(0o755)
    units = tree / "systemd"
    for unit in [*units.glob("*.service"), *units.glob("*.timer")]:
        shutil.copy(unit, root / "etc/systemd/system")
    for name in ("sysusers.d", "tmpfiles.d"):
        (root / "etc" / name).mkdir(exist_ok=True)
        shutil.copy(units / name / "acklast.conf", root / "etc" / name)
    (root / "etc/acklast").mkdir(exist_ok=True)
