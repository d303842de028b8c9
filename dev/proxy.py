"""A TCP proxy in front of a server: it can go deaf, it can cut, and it can be a hole."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Forwards to the server of a URL, and counts who connects.

    ``hear(False)`` holds back what the server says: the client's words still reach it. ``cut`` resets every
    connection at once. ``swallow(True)`` loses what either side says and closes nothing: who is connected
    then, or connects before it ends, is never heard again.
    """

    def __init__(self, url: str, port: int = 0) -> None:
        self._target = urlsplit(url)
        self._port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._hearing = asyncio.Event()
        self._hearing.set()
        self._swallowing = False
        self._lost: set[asyncio.StreamWriter] = set()
        self._over = asyncio.Event()
        self.accepted = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        self._over.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """The server's URL with the proxy's address."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        login, _, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{login}@127.0.0.1:{port}"))

    def hear(self, on: bool) -> None:
        if on:
            self._hearing.set()
        else:
            self._hearing.clear()

    def swallow(self, on: bool) -> None:
        self._swallowing = on
        if on:
            self._lost |= self._writers

    def cut(self) -> None:
        for writer in self._writers:
            _reset(writer)
        self._hearing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            upstream, upstream_writer = await asyncio.open_connection(
                self._target.hostname, self._target.port
            )
        except OSError:
            _reset(writer)
            return
        self._writers |= {writer, upstream_writer}
        if self._swallowing:
            self._lost |= {writer, upstream_writer}
        for task in (
            asyncio.create_task(self._pump(reader, upstream_writer)),
            asyncio.create_task(self._pump(upstream, writer, self._hearing)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event | None = None
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if gate is not None:
                    await gate.wait()
                if writer in self._lost:
                    continue
                writer.write(data)
                await writer.drain()
        if writer in self._lost:
            # Nor does either side hear that the other one has gone.
            await self._over.wait()
        writer.close()
        self._writers.discard(writer)
        self._lost.discard(writer)
        with suppress(ConnectionError):
            await writer.wait_closed()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, as a firewall would, and not in good order."""
    if (sock := writer.get_extra_info("socket")) is not None:
        with suppress(OSError):  # it is closed already
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
