"""The sender of carriers: publishes outcomes, confirmed, by a connection of its own."""

from __future__ import annotations

import asyncio

import aiormq
from aio_pika.abc import AbstractConnection
from aiormq import spec

from acklast.apart import apart
from acklast.broker import Link
from acklast_topology.calls import bounded, takes_nothing_in
from acklast_topology.publish import Sender, Sent, Status


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
        """Send one message; whatever goes wrong is in the answer, never raised.

        While the broker takes nothing in, nothing is written: what is would all be taken in one day, and
        each try of each job with it.
        """
        try:
            async with bounded(self._timeout_s):
                connection = await self._link.connect()
                assert connection.transport is not None
                if takes_nothing_in(connection.transport.connection):
                    await self._until_unblocked(connection.transport.connection)
                sender = await self._open(connection)
        except TimeoutError:
            return Sent(Status.UNKNOWN, f"not sent within {self._timeout_s:g} s")
        except Exception as error:  # the library ends what waits with any exception, bare ones too
            return Sent(Status.UNKNOWN, f"not sent: {str(error) or type(error).__name__}")
        sent = await sender.send(exchange, routing_key, body, properties, timeout_s=self._timeout_s)
        if sender.mute and not takes_nothing_in(connection.transport.connection):
            self._link.leave(connection, "nothing that is published is confirmed")
        return sent

    @staticmethod
    async def _until_unblocked(connection: aiormq.abc.AbstractConnection) -> None:
        """Wait until the broker takes messages in again, or the connection is over."""
        ready, closing = asyncio.ensure_future(connection.ready()), connection.closing
        try:
            await asyncio.wait({ready, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            closing.cancel()

    async def _open(self, connection: AbstractConnection) -> Sender:
        async with self._lock:
            last = self._sender
            if last is None or last.closed or last.stale:
                opening = Sender.open(connection, timeout_s=self._timeout_s, after=last)
                self._sender = await apart(opening, name="open")
                if last is not None:
                    await last.retire()
            assert self._sender is not None
            return self._sender
