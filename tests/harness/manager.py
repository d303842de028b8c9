"""A service manager that listens: what daemons tell it by sd_notify."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Self


class Manager:
    """Its address goes to a daemon as ``NOTIFY_SOCKET``."""

    def __init__(self, directory: Path) -> None:
        self.address = directory / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._heard: list[str] = []

    def __enter__(self) -> Self:
        self._socket.bind(str(self.address))
        self._socket.setblocking(False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def env(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": str(self.address)}

    def watching(self, within_s: float) -> dict[str, str]:
        """The same for a daemon that is to say within so many seconds that it gets on."""
        return {**self.env, "WATCHDOG_USEC": str(int(within_s * 1_000_000))}

    def heard(self) -> list[str]:
        """Every line so far."""
        while True:
            try:
                self._heard.append(self._socket.recv(65_536).decode())
            except BlockingIOError:
                break
        return [line for message in self._heard for line in message.splitlines()]

    def statuses(self) -> list[str]:
        """Every STATUS so far."""
        lines = self.heard()
        return [line.removeprefix("STATUS=") for line in lines if line.startswith("STATUS=")]
