"""A private Postgres cluster: own directory, own port, a commit is on disk when it returns."""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dev import need
from dev.workspace import StackError, Workspace, free_port, last_lines, wait_until

READY_S = 60.0
_USER = "acklast"

# fsync and synchronous_commit keep their defaults: the ledger refuses a server that would lose a commit.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    # In its own directory, which goes when it has been killed; what lies elsewhere stays.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
}

NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class Cluster:
    """One Postgres server. ``start`` makes it ready for use; ``kill`` and ``start`` again is a crash."""

    def __init__(
        self,
        workspace: Workspace,
        name: str = "postgres",
        *,
        settings: Mapping[str, str] = NO_SETTINGS,
        standby_of: Cluster | None = None,
    ) -> None:
        """``settings`` beside its own. A standby copies its primary at its first start, and follows it."""
        self._primary = standby_of
        self._settings = {**_SETTINGS, **settings}
        self._workspace = workspace
        self._bin = need.postgres_bin()
        self._home = workspace.directory(name)
        self._data = self._home / "data"
        self._log = self._home / "postgres.log"
        self._password: str = standby_of._password if standby_of else secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        # What its processes find; whoever changes it has it count at the next start.
        self.env = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(self._home), "TZ": "UTC"}
        self.port = free_port()

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://{_USER}:{self._password}@127.0.0.1:{self.port}/{database}"

    def launch(self) -> None:
        """Start the server without waiting for it; ``await_ready`` waits."""
        if not self._data.exists():
            self._initialise()
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        self._process = self._workspace.spawn(
            [self._bin / "postgres", "-D", self._data, "-p", str(self.port), *settings],
            env=self.env,
            log=self._log,
            end_with=signal.SIGQUIT,
        )

    def await_ready(self) -> None:
        """Wait until the server takes connections, recovery after a kill included.

        Raises:
            StackError: the server ended, or was not ready after ``READY_S``; with the end of its log.
        """
        if not wait_until(self._answers, self._ended, timeout_s=READY_S):
            raise StackError("Postgres did not become ready", last_lines(self._log))

    def start(self) -> None:
        """``launch`` and ``await_ready``; once more where a killed predecessor's children still hold on."""
        for last_try in (False, False, False, False, True):
            self.launch()
            try:
                return self.await_ready()
            except StackError:
                self.stop()
                if last_try:
                    raise
        return None

    def stop(self) -> None:
        """End it as fast as is safe for the data (an immediate shutdown). ``start`` brings it back."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """SIGKILL to all of its processes, as a crash of the machine would; none of them is left.

        To the first one alone, the others would find out by themselves, and until then answer who asks.
        ``start`` brings it back on the same port.
        """
        if self.runs():
            assert self._process is not None
            self._process.send_signal(signal.SIGSTOP)  # it starts no more of them, and keeps their ids taken
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            ends = [os.pidfd_open(pid) for pid in self._pids()]
            for end in ends:
                signal.pidfd_send_signal(end, signal.SIGKILL)
            for end in ends:
                select.select([end], [], [])
                os.close(end)
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP to all of its processes: it says nothing more, and its connections stay."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in reversed(self._pids()):
            os.kill(pid, signal.SIGCONT)

    def promote(self) -> None:
        """Make a standby a primary, and wait until it is."""
        self.sql("SELECT pg_promote()")

    def runs(self) -> bool:
        """Whether the server is there; it may be recovering."""
        return not self._ended()

    @property
    def home(self) -> Path:
        """The directory of all that it writes."""
        return self._home

    def _pids(self) -> list[int]:
        assert self._process is not None, "it does not run"
        first = self._process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [first, *map(int, children)]

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run one statement with psql; its rows as unaligned text.

        Raises:
            StackError: it failed; with what it said.
        """
        command: list[str | Path] = [
            self._bin / "psql",
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            statement,
            self.dsn(database),
        ]
        return self._workspace.run(command, env=self.env)

    def create_database(self, name: str) -> str:
        """An empty database; its address."""
        self.sql(f'CREATE DATABASE "{name}"')
        return self.dsn(name)

    def _initialise(self) -> None:
        if self._primary is not None:
            self._copy(self._primary)
            return
        password = self._workspace.write(self._home / "password", self._password)
        # "password" and not scram: the connection is loopback, and a handshake of 4,096 rounds for each of
        # thousands of short connections is time taken from the tests.
        options = ["--auth=password", "--encoding=UTF8", "--locale=C", "--no-instructions"]
        self._workspace.run(
            [self._bin / "initdb", "-D", self._data, "-U", _USER, f"--pwfile={password}", *options],
            env=self.env,
        )

    def _copy(self, primary: Cluster) -> None:
        # With -R it finds in its data where to follow, under the name by which a primary can wait for it.
        source = f"{primary.dsn()}?application_name={self._home.name}"
        self._workspace.run(
            [self._bin / "pg_basebackup", "-D", self._data, "-d", source, "-R", "-X", "stream", "-c", "fast"],
            env=self.env,
        )

    def _answers(self) -> bool:
        try:
            self.sql("SELECT 1")
        except StackError:
            return False
        return True

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._workspace.end(self._process, number)
            self._process = None


def mirrored(workspace: Workspace) -> tuple[Cluster, Cluster]:
    """A primary, and a standby that has each commit before the primary says that it is done. Both run."""
    primary = Cluster(workspace, "primary")
    primary.start()
    standby = Cluster(workspace, "standby", standby_of=primary)
    standby.start()
    # By now: before there was a standby, nothing could have been committed.
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
    primary.sql("SELECT pg_reload_conf()")
    return primary, standby


def either_dsn(primary: Cluster, standby: Cluster, database: str) -> str:
    """One address that names the hosts of both."""
    return primary.dsn(database).replace(f":{primary.port}/", f":{primary.port},127.0.0.1:{standby.port}/")
