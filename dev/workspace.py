"""A temporary directory and the processes that live in it, gone together when their owner is."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

_WARDEN = Path(__file__).with_name("warden.py")
_POLL_S = 0.05
# Below what Linux hands out to outgoing connections: a port picked here and bound seconds later is not
# taken by somebody's client in between.
_PORTS = range(20_000, 32_000)
_ours = _PORTS
_MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a fresh one inside
_ROOM_BYTES = 4 * 2**30
_places: tuple[Path, ...] = ()
# Mounted where the process alone sees it: its end takes the mounts along, and nobody has to unmount. Each
# step replaces the one before it, so that the process that was started is the server itself.
_ENTER = """\
root=$1 place=$2 user=$3
shift 3
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs none "$root/tmp"
mkdir -p "$root$place"
mount --bind "$place" "$root$place"
exec chroot --userspec="$user" --groups= "$root" env -C "$place" "$@"
"""


class StackError(Exception):
    """A server did not start. ``log`` is the end of what it said."""

    def __init__(self, what: str, log: str = "") -> None:
        super().__init__(f"{what}\n{log}" if log else what)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the servers run as. Postgres refuses to run as root, so root lends them ``nobody``."""

    uid: int
    gid: int
    lent: bool

    @classmethod
    def pick(cls) -> Identity:
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid(), lent=False)
        nobody = pwd.getpwnam("nobody")
        return cls(nobody.pw_uid, nobody.pw_gid, lent=True)

    def popen_options(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.lent else {}


def share_ports(part: int, parts: int) -> None:
    """From here on this process picks from its own part of the ports, counted from 0.

    Processes that start servers at the same time would else now and then pick the same free port.
    """
    global _ours
    _ours = _PORTS[part::parts]


def keep_in_memory() -> None:
    """From here on this process has its workspaces in memory, where that has room for the servers of tests.

    A server that is killed there loses no more than one on a disk: that takes the end of the machine. But no
    commit waits for a disk that others use too. Not for what is measured.
    """
    global _places
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES:
        _places = (_MEMORY,)


def free_port() -> int:
    """A loopback port that nothing is bound to now.

    Raises:
        StackError: a hundred random ones were all taken.
    """
    for _ in range(100):
        port = random.choice(_ours)  # noqa: S311 - not a secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise StackError("no free loopback port found")


def wait_until(ready: Callable[[], bool], failed: Callable[[], bool], *, timeout_s: float) -> bool:
    """Poll ``ready``; give up early where ``failed`` says that it cannot come true any more."""
    until = monotonic() + timeout_s
    while monotonic() < until:
        if ready():
            return True
        if failed():
            return False
        sleep(_POLL_S)
    return False


def _reachable_by_others(path: Path) -> bool:
    return all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))


def _temporary_root(identity: Identity) -> str:
    """Where to put the directory: the servers' user must be able to walk down to it."""
    usual = Path(tempfile.gettempdir())
    if not identity.lent:
        return str(next(iter((*_places, usual))))
    for place in (*_places, usual, Path("/tmp"), Path("/var/tmp")):  # noqa: S108 - mkdtemp makes a fresh one inside
        if place.is_dir() and _reachable_by_others(place):
            return str(place)
    raise StackError("no temporary directory that the user nobody can reach; set TMPDIR to one")


class Workspace:
    """Owns a temporary directory and every process spawned through it. Use as a context manager.

    The processes are ended by their process groups, never by name. A warden process does the same where this
    one is killed before it can.
    """

    def __init__(self) -> None:
        self.identity = Identity.pick()
        self.path = Path(tempfile.mkdtemp(prefix="acklast-", dir=_temporary_root(self.identity)))
        self.path.chmod(0o711)
        self._running: dict[subprocess.Popen[bytes], signal.Signals] = {}
        self._warden = subprocess.Popen(
            [sys.executable, "-I", str(_WARDEN), str(self.path)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def directory(self, name: str) -> Path:
        """A directory that belongs to the servers' user and that nobody else may read."""
        path = self.path / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.give(path)
        return path

    def write(self, path: Path, text: str, mode: int = 0o600) -> Path:
        """A file that belongs to the servers' user."""
        path.write_text(text)
        path.chmod(mode)
        self.give(path)
        return path

    def give(self, path: Path) -> None:
        """Have it belong to the servers' user."""
        if self.identity.lent:
            os.chown(path, self.identity.uid, self.identity.gid)

    def spawn(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        log: Path,
        end_with: signal.Signals,
        root: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a server in a process group of its own; ``end_with`` is the signal that ends it well.

        ``root`` is the root directory that it sees, with this workspace at its own place in it.
        """
        with log.open("ab") as output:
            process = subprocess.Popen(
                self._command(argv, root),
                env=dict(env),
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **self._options(root),
            )
        self._running[process] = end_with
        self._order(f"watch {process.pid} {int(end_with)}")
        return process

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        timeout_s: float = 60,
        root: Path | None = None,
    ) -> str:
        """Run a command as the servers' user and give what it printed; ``root`` as in ``spawn``.

        Raises:
            StackError: it failed; with what it said.
        """
        done: subprocess.CompletedProcess[str] = subprocess.run(
            self._command(argv, root),
            env=dict(env),
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            **self._options(root),
        )
        if done.returncode != 0:
            raise StackError(f"{argv[0]} ended with {done.returncode}", done.stdout + done.stderr)
        return done.stdout

    def _command(self, argv: Sequence[str | Path], root: Path | None) -> list[str]:
        parts = [str(part) for part in argv]
        if root is None:
            return parts
        user = f"{self.identity.uid}:{self.identity.gid}"
        return ["unshare", "--mount", "sh", "-euc", _ENTER, "sh", str(root), str(self.path), user, *parts]

    def _options(self, root: Path | None) -> dict[str, Any]:
        """Only root may change its root directory: there the user changes afterwards."""
        return self.identity.popen_options() if root is None else {}

    def end(self, process: subprocess.Popen[bytes], number: signal.Signals | None = None) -> None:
        """End a spawned process group, by ``number`` or its own signal; kill it after 10 seconds."""
        usual = self._running.pop(process, None)
        if usual is None:
            return
        _signal_group(process, number or usual)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        _signal_group(process, signal.SIGKILL)
        process.wait()
        self._order(f"forget {process.pid}")

    def close(self) -> None:
        """End everything and remove the directory. A second call does nothing."""
        for process in reversed(list(self._running)):
            self.end(process)
        if self._warden.stdin is not None and not self._warden.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._warden.stdin.close()
            self._warden.wait()
        shutil.rmtree(self.path, ignore_errors=True)

    def _order(self, line: str) -> None:
        assert self._warden.stdin is not None
        self._warden.stdin.write(f"{line}\n".encode())
        self._warden.stdin.flush()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def last_lines(log: Path, count: int = 25) -> str:
    """The end of a log, for an error message."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-count:])
