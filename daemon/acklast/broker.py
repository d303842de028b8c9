"""Connections to the broker: plain ones, supervised here, one for consuming and one for publishing.

Two, because a broker under a resource alarm blocks every connection that publishes: acks must get through.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

import aio_pika
from aio_pika.abc import AbstractConnection
from aiormq import spec
from yarl import URL

from acklast import lenient
from acklast.errors import BrokerRefused, BrokerUnavailable
from acklast.receiver import BulkConnection, BulkProtocol
from acklast.telemetry.events import Emitter
from acklast_topology.calls import bounded
from acklast_topology.publish import Sender, Sent, Status
from acklast_topology.refusal import Refusal, refusal_of, remedies

_LOOK = "See that RabbitMQ runs, that [broker] urls names it, and that user, password and vhost fit"
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class Link:
    """One connection that comes back. ``generation`` counts the connections so far."""

    def __init__(
        self,
        urls: Sequence[str],
        role: str,
        emitter: Emitter,
        *,
        heartbeat_s: int = 15,
        connect_timeout_s: float = 10.0,
        bulk: bool = False,
        current: Callable[[], Sequence[str]] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``bulk``: deliveries are read by the bulk receiver, not by the client library's own reader.

        ``current`` is asked before each connection whether other ``urls`` hold now: passwords change.
        """
        lenient.install()
        self._current = current or (lambda: urls)
        self._known = tuple(urls)
        self._heartbeat_s = heartbeat_s
        self._bulk = bulk
        self.protocol: BulkProtocol | None = None
        self._urls = self._parsed(urls)
        self._role = role
        self._emitter = emitter
        self._connect_timeout_s = connect_timeout_s
        self._chance = chance
        self._connection: AbstractConnection | None = None
        self._lock = asyncio.Lock()
        self.generation = 0

    async def connect(self) -> AbstractConnection:
        """The live connection, or a new one; each host of the list is tried once.

        Raises:
            BrokerUnavailable: no host of the list answers.
            BrokerRefused: each answers, and refuses the login or the certificate.
        """
        async with self._lock:
            if self._connection is not None and _alive(self._connection):
                return self._connection
            self._renew()
            failures: list[str] = []
            refusals: list[Refusal] = []
            for _ in self._urls:
                url = self._urls[0]
                try:
                    self._connection = await self._open(url)
                except (OSError, aio_pika.exceptions.AMQPError, TimeoutError) as error:
                    refusals.append(refusal_of(error, str(url)))
                    failures.append(f"{url.host}:{url.port}: {refusals[-1].what}")
                    self._urls.append(self._urls.pop(0))
                else:
                    return self._connection
            remedy = remedies(refusals)
            if all(refusal.final for refusal in refusals):
                raise BrokerRefused(f"no broker lets acklast in ({'; '.join(failures)})", f"{remedy}.")
            raise BrokerUnavailable(
                f"no broker can be used ({'; '.join(failures)})",
                f"{remedy or _LOOK}.",
            )

    def _parsed(self, urls: Sequence[str]) -> list[URL]:
        return [URL(url).update_query(heartbeat=str(self._heartbeat_s)) for url in urls]

    def _renew(self) -> None:
        current = tuple(self._current())
        if current != self._known:
            self._known, self._urls = current, self._parsed(current)
            self._emitter.notice("broker.urls_changed", role=self._role)

    async def _open(self, url: URL) -> AbstractConnection:
        async with bounded(self._connect_timeout_s):
            connection: aio_pika.Connection = await aio_pika.connect(
                url,
                client_properties={"connection_name": f"acklast {self._role}"},
                connection_class=BulkConnection if self._bulk else aio_pika.Connection,
            )
        self.protocol = connection.bulk.protocol if isinstance(connection, BulkConnection) else None
        self.generation += 1
        self._emitter.notice("broker.connected", role=self._role, host=url.host, generation=self.generation)
        return connection

    async def connect_insisting(self) -> AbstractConnection:
        """Like ``connect``, again and again with jittered pauses; one notice per outage, not one per try."""
        tries = 0
        while True:
            try:
                return await self.connect()
            except BrokerUnavailable as error:
                if tries == 0:
                    self._emitter.notice(
                        "broker.unavailable",
                        "error",
                        role=self._role,
                        error=error.what,
                        remedy=error.remedy,
                    )
                pause_s = _BACKOFF_S[min(tries, len(_BACKOFF_S) - 1)]
                await asyncio.sleep(pause_s * (0.5 + self._chance()))
                tries += 1

    async def close(self) -> None:
        if self._connection is not None and not self._connection.is_closed:
            await self._connection.close()


def vhost_of(url: URL) -> str:
    """The virtual host of a broker's URL."""
    return url.path.removeprefix("/") or "/"


def _alive(connection: AbstractConnection) -> bool:
    """Whether a connection can be used.

    Its own ``is_closed`` tells only of a close that we asked for: after a lost one it stays False for ever.
    """
    transport = connection.transport
    return transport is not None and not transport.connection.is_closed


class CarrierSender:
    """Publishes outcomes on a confirmed channel of its own link, which it opens again when it is gone."""

    def __init__(self, link: Link, *, timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._sender: Sender | None = None
        self._lock = asyncio.Lock()

    async def __call__(
        self, exchange: str, routing_key: str, body: bytes, properties: spec.Basic.Properties
    ) -> Sent:
        """Send one message; whatever goes wrong is in the answer, never raised."""
        try:
            async with asyncio.timeout(self._timeout_s):
                sender = await self._open()
        except (BrokerUnavailable, OSError, aio_pika.exceptions.AMQPError, TimeoutError) as error:
            return Sent(Status.UNKNOWN, str(error) or type(error).__name__)
        return await sender.send(exchange, routing_key, body, properties, timeout_s=self._timeout_s)

    async def _open(self) -> Sender:
        async with self._lock:
            if self._sender is None or self._sender.closed:
                self._sender = await Sender.open(await self._link.connect())
            return self._sender
