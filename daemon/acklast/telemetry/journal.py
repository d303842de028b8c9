"""systemd's journal: what the daemon says of itself goes there with its fields, by the native protocol.

Only where the journal reads standard error anyway. A job's line, of which there may be thousands a second,
stays on that stream with the rest and carries its priority in front, as sd-daemon(3) has it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import Any, Final, TextIO

from acklast.telemetry.record import dumped

PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
SOCKET: Final = "/run/systemd/journal/socket"
_NAME: Final = re.compile(r"[A-Z0-9_]{1,55}\Z", re.ASCII)


def prefix(level: str) -> str:
    """What stands before a line on the stream, for the journal to know its priority."""
    return f"<{PRIORITIES.get(level, PRIORITIES['info'])}>"


def reads(file: TextIO, env: Mapping[str, str]) -> bool:
    """Whether what is written to ``file`` ends up in the journal: systemd.exec(5), ``JOURNAL_STREAM``."""
    try:
        about = os.fstat(file.fileno())
    except (OSError, ValueError):
        return False
    return env.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"


class Journal:
    """Takes entries one by one. It never waits: what it does not take now is to be written elsewhere."""

    def __init__(self, address: str = SOCKET) -> None:
        self._address = address

    def takes(self, text: str, level: str, fields: Mapping[str, Any]) -> bool:
        """Send one entry; whether it is on its way. Fields go as ``ACKLAST_`` and their name."""
        entry = [
            _field("MESSAGE", text),
            _field("PRIORITY", str(PRIORITIES.get(level, PRIORITIES["info"]))),
            _field("SYSLOG_IDENTIFIER", "acklast"),
            *(_field(f"ACKLAST_{name.upper()}", _text(value)) for name, value in fields.items()),
        ]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(b"".join(entry), self._address)
        except OSError:
            return False
        return True


def _text(value: object) -> str:
    return value if isinstance(value, str) else dumped(value)


def _field(name: str, value: str) -> bytes:
    """With its length before it, so that a value may have any bytes in it."""
    if not _NAME.match(name):
        return b""
    data = value.encode(errors="replace")
    return b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data)
