"""The client that sends a lane's requests, and knows of every failure whether anything had been sent.

That is all the difference between *it did not happen* and *it may have happened*, and the client library
does not tell: it repeats some requests by itself, and answers with one exception for a connection that was
dead before the first byte and for one that died behind the last.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp import ClientHandlerType, ClientRequest, ClientResponse, ClientTimeout
from yarl import URL

from acklast.http.request import Request

_DRAINED: Final = 65_536
"""The most of a body that is read only so that its connection can be used again."""
_AFRESH: Final = "the connection was closed before anything was sent"


class NotSent(Exception):  # noqa: N818 - named for what is true, not for being an error
    """Nothing was sent: the effect cannot have happened. ``why`` is a short code."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class CutOff(Exception):  # noqa: N818 - as above
    """The request was sent, wholly or in part, and its answer did not come, or not to its end."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class LedAway(Exception):  # noqa: N818 - as above
    """The answer redirects to another place, which may not have what this one was given."""


class _Stale(Exception):  # noqa: N818 - as above
    """An idle connection turned out to be closed; nothing was written to it."""


@dataclass(frozen=True, slots=True)
class Connecting:
    """How a lane's requests travel. Times are in seconds."""

    pool: int
    """Connections at the most: the lane's concurrency, so that no request ever waits for one."""
    connect_s: float
    """For name, connection and TLS together."""
    read_s: float
    """Between two pieces of the answer, the first included."""
    keep_alive_s: float
    """How long an idle connection is kept. 0 closes each after its answer."""
    max_redirects: int = 0
    tls: ssl.SSLContext | None = None
    """None: the system's certificate authorities."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``start`` is the beginning of the body; ``whole``: the body did not break off."""

    status: int
    headers: Mapping[str, str]
    start: bytes
    whole: bool


class Client:
    """One lane's connections. Made inside the running loop, at the first request."""

    def __init__(self, connecting: Connecting, agent: str) -> None:
        self._connecting = connecting
        self._agent = agent
        self._timeout = ClientTimeout(
            total=None,  # the attempt's own timeout ends it, and knows what has been sent
            connect=connecting.connect_s,
            sock_read=connecting.read_s,
        )
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request, *, keep: int, sending: Sending) -> Answer:
        """Send once and read the answer, keeping the first ``keep`` bytes of its body.

        ``sending`` tells, then and later, whether anything was written; a cancellation is the caller's.

        Raises:
            NotSent, CutOff, LedAway: as they say.
        """
        session = self._session or self._open()
        try:
            async with session.request(
                request.method,
                URL(request.url, encoded=True),
                headers=request.headers,
                data=request.body,
                allow_redirects=self._connecting.max_redirects > 0,
                max_redirects=self._connecting.max_redirects + 1,
                middlewares=(sending,),
            ) as response:
                return await _answer(response, keep)
        except (aiohttp.TooManyRedirects, aiohttp.RedirectClientError) as error:
            raise LedAway from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise sending.failure(error) from error

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        connecting = self._connecting
        connector = aiohttp.TCPConnector(
            limit=connecting.pool,
            ssl=connecting.tls or True,
            force_close=not connecting.keep_alive_s,
            keepalive_timeout=connecting.keep_alive_s or None,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            request_class=_Outgoing,
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            requote_redirect_url=False,
            skip_auto_headers=("Content-Type",),
            headers={"User-Agent": self._agent, "Accept-Encoding": "identity"},
        )
        return self._session


class Sending:
    """One request on its way: a middleware, because behind the library's own retry it is too late.

    The library repeats a GET, PUT or DELETE once whose connection broke, whether it was received or not. That
    would be a call that no budget counted and an effect that nobody knows of, so what it would catch becomes
    an exception that it does not know.
    """

    def __init__(self, on_written: Callable[[], None] = lambda: None) -> None:
        """``on_written`` is called right before the first byte."""
        self.written = False
        """Whether any byte may have left. Safe to read at any time."""
        self._on_written = on_written
        self._origin: URL | None = None

    async def __call__(self, req: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        self._origin = self._origin or req.url.origin()
        if req.url.origin() != self._origin:
            raise LedAway
        assert isinstance(req, _Outgoing)
        req.sending = self
        while True:
            try:
                return await handler(req)
            except _Stale:
                continue  # it is closed and gone; at last there is a fresh one
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
                raise self.failure(error) from error

    def write(self) -> None:
        """The first byte is about to leave."""
        if not self.written:
            self.written = True
            self._on_written()

    def failure(self, error: BaseException) -> NotSent | CutOff:
        """What a failure of the library's means."""
        return CutOff(_why(error)) if self.written else NotSent(_why(error))


class _Outgoing(ClientRequest):
    """A request that notes when it is written, and does not use a connection that is closed already."""

    sending: Sending | None = None

    async def send(self, conn: Any) -> ClientResponse:
        protocol = conn.protocol
        if protocol in _USED and _is_readable(conn.transport):
            # Nothing is due on an idle connection: this is its end, which the loop has not seen yet.
            conn.close()
            raise _Stale(_AFRESH)
        _USED.add(protocol)
        if self.sending is not None:
            self.sending.write()
        return await super().send(conn)


_USED: Final[WeakSet[Any]] = WeakSet()
"""Connections that have carried a request before."""


def _is_readable(transport: asyncio.Transport | None) -> bool:
    if transport is None or transport.is_closing():
        return True
    descriptor = transport.get_extra_info("socket").fileno()
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


async def _answer(response: ClientResponse, keep: int) -> Answer:
    """Read what is kept, and the rest if it is short: then the connection can be used again."""
    start, size, whole = bytearray(), 0, True
    try:
        async for piece in response.content.iter_any():
            size += len(piece)
            start += piece[: max(0, keep - len(start))]
            if size > max(keep, _DRAINED):
                response.close()
                break
    except (aiohttp.ClientError, OSError):
        whole = False
    return Answer(response.status, response.headers, bytes(start), whole)


def _why(error: BaseException) -> str:
    """A short code for a failure: never its text, which has the URL in it."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "dns"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return "tls"
        case aiohttp.ConnectionTimeoutError():
            return "connect_timeout"
        case aiohttp.ClientConnectorError():
            return "connect"
        case aiohttp.SocketTimeoutError() | TimeoutError():
            return "read_timeout"
        case aiohttp.ServerDisconnectedError():
            return "disconnected"
        case aiohttp.ClientOSError() | OSError():
            return "reset"
        case aiohttp.ClientResponseError():
            return "no_http"
        case _:
            return "unsendable" if isinstance(error, ValueError) else "client"
