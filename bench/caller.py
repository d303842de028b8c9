"""The smallest HTTP clients that keep their connections: what contenders call the provider with."""

from __future__ import annotations

import asyncio
import http.client
import os
import threading
from collections.abc import Callable
from typing import Final

PORT: Final = "BENCH_PROVIDER_PORT"
METER: Final = "provider"
"""The name of the provider's meter where there is one alone."""
_REQUEST: Final = "POST /{name} HTTP/1.1\r\nHost: provider\r\nContent-Length: 0\r\n\r\n"


def _nothing() -> None:
    """Nobody wants to know."""


class Caller:
    """Calls the provider over as many connections as there are calls in flight."""

    def __init__(self, name: str = METER) -> None:
        self._port = int(os.environ[PORT])
        self._request = _REQUEST.format(name=name).encode()
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def call(self, on_sent: Callable[[], None] = _nothing) -> float | None:
        """One call; None where it was served, else the seconds after which to try again.

        ``on_sent`` is called right before the request goes out.
        """
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        on_sent()
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        self._idle.append((reader, writer))
        if head.startswith(b"HTTP/1.1 200"):
            return None
        return float(head.partition(b"Retry-After: ")[2].split(b"\r\n")[0])


_threads = threading.local()


def call_from_thread() -> float | None:
    """The same for whoever works in threads: each has a connection of its own."""
    if not hasattr(_threads, "connection"):
        _threads.connection = http.client.HTTPConnection("127.0.0.1", int(os.environ[PORT]))
    connection: http.client.HTTPConnection = _threads.connection
    connection.request("POST", f"/{METER}")
    answer = connection.getresponse()
    answer.read()
    return None if answer.status == 200 else float(answer.headers["Retry-After"])
