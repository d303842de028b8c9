"""The bulk receiver: takes what the socket has in one read, hands each whole delivery to a plain function.

It lies under the client library as its transport. Deliveries on the channels that asked for it never reach
the library's reader; every other frame does, untouched. The seam is the library's ``transport_factory`` with
an ordinary stream reader behind it: no private name of the library is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Final, TypeAlias

import aio_pika
from aiormq.connection import TransportFactory
from aiormq.exceptions import AMQPConnectionError
from yarl import URL

from acklast.frames import BODY, CHANNEL_CLOSE, DELIVER, FRAME_HEAD, HEADER, HEARTBEAT, METHOD, delivery_of
from acklast_topology.contract import RawMessage

Take: TypeAlias = Callable[[int, RawMessage], None]
"""Takes a delivery tag and its message. It only notes them: it runs inside the socket's read."""

KNOWN_AIORMQ: Final = "7."
"""How the versions of the client library begin that this receiver was tested with."""
_SIGN_OF_LIFE_S: Final = 1.0
"""How often the library is told that frames come in: it takes a silent connection for a dead one."""


class _Content:
    """A delivery of which frames are still missing."""

    __slots__ = ("bodies", "header", "method", "missing")

    def __init__(self, method: bytes) -> None:
        self.method = method
        self.header = b""
        self.bodies: list[bytes] = []
        self.missing = 0


class HeardProtocol(asyncio.StreamReaderProtocol):
    """A stream's protocol that knows when it last heard something."""

    def __init__(self, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(reader, loop=loop)
        self._time = loop.time
        self._heard_at = loop.time()
        self.abort: Callable[[], None] = lambda: None
        """Ends the connection at once, and does not ask the other side."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.abort = transport.abort  # type: ignore[attr-defined]

    def silent_s(self) -> float:
        """For how long nothing has come."""
        return self._time() - self._heard_at

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._time()
        super().data_received(data)


class BulkProtocol(HeardProtocol):
    """Cuts frames out of what arrives; feeds the library's reader with all that is not a taken delivery."""

    def __init__(self, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(reader, loop)
        self._feed = reader.feed_data
        self._rest = b""
        self._takers: dict[int, Take] = {}
        self._told: dict[int, Callable[[], None]] = {}
        self._open: dict[int, _Content] = {}
        self._spoke = 0.0
        self._foreign: bool | None = None
        self.write: Callable[[bytes], None] = _unconnected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.write = transport.write  # type: ignore[attr-defined]

    def take(self, channel: int, take: Take, gone: Callable[[], None] = lambda: None) -> None:
        """From now on hand the deliveries of ``channel`` to ``take``.

        ``gone`` is called when the broker closes the channel, before the library knows: an ack that it gets
        after its own "closed" is one on a channel that was never opened, and ends the whole connection.
        """
        self._takers[channel] = take
        self._told[channel] = gone

    def leave(self, channel: int) -> None:
        """Hand nothing of ``channel`` on any more; what of it is under way is dropped with the channel."""
        self._takers.pop(channel, None)
        self._told.pop(channel, None)
        self._open.pop(channel, None)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._time()
        if self._foreign is None:
            # A server that speaks another version answers with a bare header: the library knows what to say.
            # Asked of the first bytes alone: later the same four may be a body's.
            self._foreign = data.startswith(b"AMQP")
        if self._foreign:
            self._feed(data)
            return
        if self._rest:
            data = self._rest + data
        at = passed = 0
        end = len(data)
        others: list[bytes] = []
        while end - at >= 8:
            kind, channel, size = FRAME_HEAD.unpack_from(data, at)
            stop = at + 8 + size
            if stop > end:
                break
            if channel in self._takers and self._consumed(kind, channel, data, at + 7, stop - 1):
                if passed < at:
                    others.append(data[passed:at])
                passed = stop
            at = stop
        if passed < at:
            others.append(data[passed:at])
        self._rest = data[at:]
        if others:
            self._feed(b"".join(others))
        elif passed and (now := self._time()) - self._spoke > _SIGN_OF_LIFE_S:
            self._spoke = now
            self._feed(HEARTBEAT)

    def _consumed(self, kind: int, channel: int, data: bytes, at: int, stop: int) -> bool:
        """Whether a frame belongs to a delivery that is taken here."""
        content = self._open.get(channel)
        if content is None:
            if kind != METHOD or data[at : at + 4] != DELIVER:
                if kind == METHOD and data[at : at + 4] == CHANNEL_CLOSE:
                    self._told[channel]()
                return False
            self._open[channel] = _Content(data[at:stop])
            return True
        if kind == HEADER:
            content.header = data[at:stop]
            content.missing = int.from_bytes(data[at + 4 : at + 12], "big")
        elif kind == BODY:
            content.bodies.append(data[at:stop])
            content.missing -= stop - at
        else:
            return False
        if content.missing <= 0:
            del self._open[channel]
            body = content.bodies[0] if len(content.bodies) == 1 else b"".join(content.bodies)
            self._takers[channel](*delivery_of(content.method, content.header, body))
        return True


def _unconnected(_: bytes) -> None:
    raise ConnectionError("not connected yet")


def library_version() -> str:
    """The version of the client library that is installed."""
    return version("aiormq")


def knows_library() -> bool:
    """Whether the client library is of a version that this receiver was tested with."""
    return library_version().startswith(KNOWN_AIORMQ)


class Layer(TransportFactory):
    """Opens the library's connection over a protocol of ours, which it keeps as ``protocol``."""

    def __init__(self, kind: type[HeardProtocol]) -> None:
        self._kind = kind
        self.protocol: HeardProtocol | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect; TLS by the library's own context provider.

        Raises:
            AMQPConnectionError: as the library's own factories do.
        """
        loop = asyncio.get_running_loop()
        provider = kwargs.pop("ssl_context_provider", None)
        ssl = await provider.get_context() if url.scheme == "amqps" and provider else None
        reader = asyncio.StreamReader(loop=loop)
        protocol = self._kind(reader, loop)
        try:
            transport, _ = await loop.create_connection(
                lambda: protocol, url.host or "localhost", url.port or 5672, ssl=ssl, **kwargs
            )
        except OSError as error:
            raise AMQPConnectionError(*error.args) from error
        self.protocol = protocol
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


class HeardConnection(aio_pika.Connection):
    """The library's plain connection, and one that tells how long it has heard nothing."""

    protocol_kind: type[HeardProtocol] = HeardProtocol

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.layer = Layer(self.protocol_kind)
        # Not through the constructor: it writes what it does not know into the URL's query.
        self.kwargs["transport_factory"] = self.layer


class BulkConnection(HeardConnection):
    """The same with the bulk receiver."""

    protocol_kind = BulkProtocol
