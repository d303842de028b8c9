"""A private RabbitMQ node: own directory, own ports, own port mapper, nothing of the system's."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from dev import need
from dev.workspace import StackError, Workspace, free_port, last_lines, wait_until

READY_S = 120.0
_USER = "acklast"

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
"""


@dataclass(frozen=True, slots=True)
class Management:
    """The management plugin's HTTP API: a virtual host in milliseconds, where rabbitmqctl takes a second."""

    base: str
    user: str
    password: str

    @classmethod
    def beside(cls, amqp_url: str, base: str | None = None) -> Management:
        """The API of the broker at ``amqp_url``: at ``base``, or at the usual port of the same host."""
        parts = urlsplit(amqp_url)
        default = f"http://{parts.hostname or 'localhost'}:15672"
        return cls(
            (base or default).rstrip("/"),
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
        )

    def call(self, method: str, path: str, body: Any = None, *, timeout_s: float = 30) -> Any:
        """One call; the decoded answer, or None where there is none.

        Raises:
            urllib.error.URLError: no answer, or one that is not a success.
        """
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        request = urllib.request.Request(  # noqa: S310 - the base comes from us or from the developer
            f"{self.base}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 - as above
            text = answer.read()
        return json.loads(text) if text else None

    def answers(self) -> bool:
        try:
            self.call("GET", "whoami", timeout_s=2)
        except (OSError, ValueError):
            return False
        return True

    def create_vhost(self, name: str) -> None:
        vhost = quote(name, safe="")
        self.call("PUT", f"vhosts/{vhost}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.call("PUT", f"permissions/{vhost}/{quote(self.user, safe='')}", everything)

    def delete_vhost(self, name: str) -> None:
        self.call("DELETE", f"vhosts/{quote(name, safe='')}")


class Node:
    """One broker. ``start`` makes it ready for use; ``kill`` and ``start`` again is a crash."""

    def __init__(self, workspace: Workspace, name: str = "rabbit") -> None:
        self._workspace = workspace
        self._bin = need.rabbitmq_bin()
        self._epmd_program = need.epmd()
        self._home = workspace.directory(name)
        self._node = f"{name}@localhost"
        self._password = secrets.token_hex(16)
        self.port = free_port()
        self.management = Management(f"http://127.0.0.1:{free_port()}", _USER, self._password)
        self._env = self._environment()
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._configure()

    def url(self, vhost: str = "/") -> str:
        return f"amqp://{_USER}:{self._password}@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    def launch(self) -> None:
        """Start the processes without waiting for them; ``await_ready`` waits."""
        if self._epmd is None:
            # Left to itself, the node would start a port mapper that outlives it and belongs to nobody.
            self._epmd = self._spawn(
                self._epmd_program, "-port", self._env["ERL_EPMD_PORT"], "-address", "127.0.0.1"
            )
            self._await(lambda: _listens(int(self._env["ERL_EPMD_PORT"])), self._epmd, 10)
        self._process = self._spawn(self._bin / "rabbitmq-server")

    def await_ready(self) -> None:
        """Wait for the listeners of AMQP and of the management plugin.

        Raises:
            StackError: the node ended, or was not ready after ``READY_S``; with the end of its log.
        """
        assert self._process is not None, "launch() comes first"
        self._await(lambda: _listens(self.port) and self.management.answers(), self._process, READY_S)

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
        return self._workspace.run([self._bin / "rabbitmqctl", "-q", *arguments], env=self._env)

    def _environment(self) -> dict[str, str]:
        home, port = self._home, str(free_port())
        control = str(free_port())
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "RABBITMQ_NODENAME": self._node,
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
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CTL_DIST_PORT_MIN": control,
            "RABBITMQ_CTL_DIST_PORT_MAX": str(int(control) + 20),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def _configure(self) -> None:
        settings = _CONFIG.format(
            amqp=self.port,
            management=urlsplit(self.management.base).port,
            user=_USER,
            password=self._password,
        )
        write, home = self._workspace.write, self._home
        write(home / "rabbitmq.conf", settings)
        write(home / "enabled_plugins", "[rabbitmq_management].\n")
        write(home / ".erlang.cookie", secrets.token_hex(16), mode=0o400)

    def _spawn(self, *argv: str | Path) -> subprocess.Popen[bytes]:
        # SIGKILL ends it well enough: the data are thrown away, and a clean stop takes seconds.
        return self._workspace.spawn(
            argv, env=self._env, log=self._home / "output.log", end_with=signal.SIGKILL
        )

    def _await(self, ready: Callable[[], bool], process: subprocess.Popen[bytes], timeout_s: float) -> None:
        if not wait_until(ready, lambda: process.poll() is not None, timeout_s=timeout_s):
            raise StackError(f"RabbitMQ ({process.args!r}) did not become ready", self._logs())

    def _logs(self) -> str:
        name = re.sub(r"[^\w@.-]", "_", self._node)
        return last_lines(self._home / "output.log") + "\n" + last_lines(self._home / "log" / f"{name}.log")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
