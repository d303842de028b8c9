"""A daemon whose standard error systemd's journal reads, and what stands where the journal's socket is."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from harness.daemon import PYTHON_PATH, Daemon

_NAME: Final = "journal"
_CUSTOM: Final = """
from acklast.telemetry import journal
journal.Journal.__init__.__defaults__ = ({address!r},)
"""
"""Has the process send its entries to another address: systemd's is everybody's."""


class _Entries(asyncio.DatagramProtocol):
    def __init__(self, told: bytearray) -> None:
        self._told = told

    def datagram_received(self, data: bytes, _: object) -> None:
        self._told += data


@asynccontextmanager
async def journal(directory: Path) -> AsyncIterator[bytearray]:
    """All that is sent to the socket in this directory, as it came."""
    told = bytearray()
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Entries(told), local_addr=str(directory / _NAME), family=socket.AF_UNIX
    )
    try:
        yield told
    finally:
        transport.close()


def journaled(daemon: Daemon, directory: Path) -> Daemon:
    """The same daemon, not started yet and ``fresh``, as a service of systemd's."""
    custom = directory / "custom"
    custom.mkdir()
    (custom / "sitecustomize.py").write_text(_CUSTOM.format(address=str(directory / _NAME)))
    daemon.log_file.touch()
    about = daemon.log_file.stat()
    daemon.environment |= {
        "JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}",
        "PYTHONPATH": os.pathsep.join((str(custom), PYTHON_PATH)),
    }
    return daemon
