"""The smallest HTTP client that keeps its connections: what a contender calls the provider with."""

from __future__ import annotations

import asyncio
import os
from typing import Final

PORT: Final = "BENCH_PROVIDER_PORT"
_REQUEST: Final = b"POST / HTTP/1.1\r\nHost: provider\r\nContent-Length: 0\r\n\r\n"


class Caller:
    """Calls the provider over as many connections as there are calls in flight."""

    def __init__(self) -> None:
        self._port = int(os.environ[PORT])
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def call(self) -> float | None:
        """One call; None where it was served, else the seconds after which to try again."""
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(_REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        self._idle.append((reader, writer))
        if head.startswith(b"HTTP/1.1 200"):
            return None
        return float(head.partition(b"Retry-After: ")[2].split(b"\r\n")[0])
