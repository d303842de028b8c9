"""A private RabbitMQ node: own directory, own ports, own port mapper, nothing of the system's."""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from dev import need
from dev.certificates import Authority, Pair
from dev.management import Management
from dev.workspace import StackError, Workspace, free_port, last_lines, wait_until

__all__ = ["Management", "Membership", "Node", "PortMapper", "Programs", "Tls"]

READY_S = 120.0
ROOT: Final = "ACKLAST_BROKER_ROOT"
"""Names a root directory that has another RabbitMQ than this machine: ``dev.brokers`` builds such."""
USER: Final = "acklast"

_CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management}
default_user = {user}
default_pass = {password}
loopback_users.{user} = true
log.console = false
log.file.level = info
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
max_message_size = 33554432
"""

_TLS = """\
listeners.ssl.1 = 127.0.0.1:{amqps}
ssl_options.cacertfile = {ca}
ssl_options.certfile = {cert}
ssl_options.keyfile = {key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
management.ssl.ip = 127.0.0.1
management.ssl.port = {https}
management.ssl.cacertfile = {ca}
management.ssl.certfile = {cert}
management.ssl.keyfile = {key}
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = AMQPLAIN
auth_mechanisms.3 = EXTERNAL
ssl_cert_login_from = common_name
"""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where RabbitMQ's programs are: on this machine, or in a ``root`` directory of their own."""

    directory: Path
    epmd: Path
    root: Path | None = None

    @classmethod
    def pick(cls, root: Path | None = None) -> Programs:
        """This machine's, unless ``root`` or the environment names another root directory.

        Raises:
            Missing: RabbitMQ is not installed; the text says how to get it.
        """
        root = root or (Path(named) if (named := os.environ.get(ROOT)) else None)
        if root is None:
            return cls(need.rabbitmq_bin(), need.epmd())
        return cls(Path("/usr/lib/rabbitmq/bin"), Path("/usr/bin/epmd"), root)


@dataclass(frozen=True, slots=True)
class Tls:
    """What a node shows to whoever connects by TLS, and whose certificates it takes from them."""

    authority: Authority
    server: Pair
    amqps: int = field(default_factory=free_port)
    https: int = field(default_factory=free_port)

    @classmethod
    def made_in(cls, workspace: Workspace) -> Tls:
        """With an authority of its own, and a certificate for the node.

        Raises:
            Missing: there is no ``openssl``; the text says how to get it.
        """
        directory = workspace.directory("tls")
        authority = Authority(directory)
        server = authority.issue("localhost", "server")
        for path in (authority.cert, server.cert, server.key):
            workspace.give(path)
        return cls(authority, server)


class PortMapper:
    """``epmd``, by which nodes find each other's ports: one for all nodes of a cluster."""

    def __init__(self, workspace: Workspace, programs: Programs) -> None:
        self.port = free_port()
        self._workspace = workspace
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it runs already.

        Left to itself, a node would start one that outlives it and belongs to nobody.
        """
        if self._process is not None:
            return
        self._process = process = self._workspace.spawn(
            [self._programs.epmd, "-port", str(self.port), "-address", "127.0.0.1"],
            env={"PATH": _PATH},
            log=self._workspace.path / "epmd.log",
            end_with=signal.SIGKILL,
            root=self._programs.root,
        )
        if not wait_until(lambda: _listens(self.port), lambda: process.poll() is not None, timeout_s=10):
            raise StackError("the port mapper did not start", last_lines(self._workspace.path / "epmd.log"))


@dataclass(frozen=True, slots=True)
class Membership:
    """What the nodes of one cluster have in common. A node alone is a cluster of one."""

    epmd: PortMapper
    settings: str = ""
    """More lines of ``rabbitmq.conf``."""
    erlang: str = ""
    """More arguments for Erlang."""
    cookie: str = field(default_factory=lambda: secrets.token_hex(16))
    password: str = field(default_factory=lambda: secrets.token_hex(16))


_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Node:
    """One broker. ``start`` makes it ready for use; ``kill`` and ``start`` again is a crash."""

    def __init__(
        self,
        workspace: Workspace,
        name: str = "rabbit",
        *,
        programs: Programs | None = None,
        tls: Tls | None = None,
        member: Membership | None = None,
    ) -> None:
        self._workspace = workspace
        self._programs = programs or Programs.pick()
        self._member = member or Membership(PortMapper(workspace, self._programs))
        self._home = workspace.directory(name)
        self.name = f"{name}@localhost"
        self.tls = tls
        self.port = free_port()
        self.management = Management(f"http://127.0.0.1:{free_port()}", USER, self._member.password)
        self._env = self._environment()
        self._process: subprocess.Popen[bytes] | None = None
        self._configure()

    def url(self, vhost: str = "/") -> str:
        return f"amqp://{USER}:{self._member.password}@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    def launch(self) -> None:
        """Start the processes without waiting for them; ``await_ready`` waits."""
        self._member.epmd.start()
        # SIGKILL ends it well enough: the data are thrown away, and a clean stop takes seconds.
        self._process = self._workspace.spawn(
            [self._programs.directory / "rabbitmq-server"],
            env=self._env,
            log=self._home / "output.log",
            end_with=signal.SIGKILL,
            root=self._programs.root,
        )

    def await_ready(self) -> None:
        """Wait for the listeners of AMQP and of the management plugin.

        Raises:
            StackError: the node ended, or was not ready after ``READY_S``; with the end of its log.
        """
        self.await_(lambda: _listens(self.port) and self.management.answers(), "it is ready")

    def await_(self, true: Callable[[], bool], what: str) -> None:
        """Wait until something is true of it; ``what`` says it in words.

        Raises:
            StackError: the node ended, or it was not true after ``READY_S``; with the end of its log.
        """
        process = self._process
        assert process is not None, "launch() comes first"
        if not wait_until(true, lambda: process.poll() is not None, timeout_s=READY_S):
            raise StackError(f"RabbitMQ {self.name}: not so that {what}", self._logs())

    def start(self) -> None:
        """``launch`` and ``await_ready``."""
        self.launch()
        self.await_ready()

    def kill(self) -> None:
        """SIGKILL, as a crash would. Its data stay: ``start`` brings it back on the same port.

        Give a freshly declared quorum queue a second first: RabbitMQ writes the queue's place among its Raft
        groups down every half second only, and a queue killed before that never answers again.
        """
        if self._process is not None:
            self._workspace.end(self._process, signal.SIGKILL)
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: it says nothing more, and its connections stay. ``resume`` lets it go on."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "launch() comes first"
        os.killpg(self._process.pid, number)

    def ctl(self, *arguments: str) -> str:
        """``rabbitmqctl`` on this node: about a second a call. For what the management API cannot do.

        Raises:
            StackError: it failed; with what it said.
        """
        return self._command("rabbitmqctl", *arguments)

    def _command(self, program: str, *arguments: str) -> str:
        argv: Sequence[str | Path] = [self._programs.directory / program, "-q", *arguments]
        return self._workspace.run(argv, env=self._env, root=self._programs.root)

    def _environment(self) -> dict[str, str]:
        home, port = self._home, str(free_port())
        control = str(free_port())
        return {
            "PATH": _PATH,
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_DIST_PORT": port,
            "RABBITMQ_BASE": str(home),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(home / "schema"),
            # The packaged one would bring in the system's own settings.
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-kernel inet_dist_use_interface {{127,0,0,1}} {self._member.erlang}".strip()
            ),
            "RABBITMQ_CTL_DIST_PORT_MIN": control,
            "RABBITMQ_CTL_DIST_PORT_MAX": str(int(control) + 20),
            "ERL_EPMD_PORT": str(self._member.epmd.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def _configure(self) -> None:
        settings = self._member.settings + _CONFIG.format(
            amqp=self.port,
            management=urlsplit(self.management.base).port,
            user=USER,
            password=self._member.password,
        )
        plugins = ["rabbitmq_management"]
        if tls := self.tls:
            settings += _TLS.format(
                amqps=tls.amqps,
                https=tls.https,
                ca=tls.authority.cert,
                cert=tls.server.cert,
                key=tls.server.key,
            )
            plugins.append("rabbitmq_auth_mechanism_ssl")
        write, home = self._workspace.write, self._home
        write(home / "rabbitmq.conf", settings)
        write(home / "enabled_plugins", f"[{','.join(plugins)}].\n")
        write(home / ".erlang.cookie", self._member.cookie, mode=0o400)

    def _logs(self) -> str:
        name = re.sub(r"[^\w@.-]", "_", self.name)
        return last_lines(self._home / "output.log") + "\n" + last_lines(self._home / "log" / f"{name}.log")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
