"""What systemd is told, by the sd_notify protocol. Without systemd every call does nothing.

Source: sd_notify(3). The socket's address may be abstract (a leading '@').
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping


class Notify:
    """Speaks to the service manager that the environment names, if it names one."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        address = (os.environ if env is None else env).get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = _watchdog_s(os.environ if env is None else env)
        """Within so many seconds the manager wants to hear ``watchdog``; None where it does not."""

    def ready(self, status: str) -> None:
        """Every lane consumes."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """The configuration is being read again; ``ready`` must follow. The time is notify-reload's."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={status}")

    def stopping(self, status: str, extend_s: float) -> None:
        """A drain has begun; ask for ``extend_s`` more seconds than the unit's stop timeout may leave."""
        self._send(f"STOPPING=1\nSTATUS={status}\nEXTEND_TIMEOUT_USEC={int(extend_s * 1_000_000)}")

    def extend(self, status: str, extend_s: float) -> None:
        """It gets on: the same question again. One message: a manager that is slow to read takes few."""
        self._send(f"STATUS={status}\nEXTEND_TIMEOUT_USEC={int(extend_s * 1_000_000)}")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(message.encode(), self._address)
        except OSError:
            # A manager that does not listen must never stop a job.
            return


def _watchdog_s(env: Mapping[str, str]) -> float | None:
    """As sd_watchdog_enabled(3) reads it: what is meant for another process is not meant for us."""
    try:
        usec, pid = int(env["WATCHDOG_USEC"]), int(env.get("WATCHDOG_PID", os.getpid()))
    except (KeyError, ValueError):
        return None
    return usec / 1_000_000 if usec > 0 and pid == os.getpid() else None
