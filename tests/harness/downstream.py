"""A downstream over HTTP in the test's own process: it answers as the test says and keeps what it got."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

Answer: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came."""

    method: str
    target: str
    """Path and query, as they stood on the wire."""
    headers: Mapping[str, str]
    body: bytes
    peer: tuple[str, int]
    """Its connection: two calls of the same peer came over the same one."""


@dataclass(slots=True)
class Downstream:
    """Made by ``downstream``."""

    url: str
    calls: list[Call] = field(default_factory=list)
    busy: int = 0
    busiest: int = 0
    """The most calls that were under way at once."""

    @property
    def connections(self) -> int:
        return len({call.peer for call in self.calls})

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            yield
        finally:
            self.busy -= 1


@asynccontextmanager
async def downstream(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Downstream]:
    """A server on a free port of the loopback."""
    made = Downstream("")

    async def take(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        assert request.transport is not None
        peer = request.transport.get_extra_info("peername")
        made.calls.append(Call(request.method, request.raw_path, request.headers.copy(), body, peer))
        with made.counted():
            return await answer(request)

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", take)
    # handler_cancellation: a client that gave up leaves nothing behind that the end would wait for.
    runner = web.AppRunner(app, handler_cancellation=True, handle_signals=False, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    _, port = runner.addresses[0][:2]
    made.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield made
    finally:
        await runner.cleanup()


def says(status: int, body: str = "", **headers: str) -> Answer:
    """Always this answer. ``_`` in a header's name stands for ``-``."""

    async def answer(request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, text=body, headers=named)

    return answer


async def hangs(request: web.Request) -> web.StreamResponse:
    """Take the request and never answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def aborts(request: web.Request) -> web.StreamResponse:
    """Take the request and reset the connection."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def breaks_off(request: web.Request) -> web.StreamResponse:
    """Say 200, send a part of the body and break off."""
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(b"half of ")
    assert request.transport is not None
    request.transport.abort()
    return response
