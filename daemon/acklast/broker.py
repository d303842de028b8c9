"""Connections to the broker: plain ones, supervised here, one for consuming and one for publishing.

Two, because a broker under a resource alarm blocks every connection that publishes: acks must get through.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import aio_pika
import aiormq
from aio_pika.abc import AbstractConnection
from yarl import URL

from acklast import lenient
from acklast.apart import apart
from acklast.errors import BrokerRefused, BrokerUnavailable
from acklast.hosts import NoneAnswers, first_that_answers
from acklast.receiver import BulkConnection, BulkProtocol, HeardConnection, HeardProtocol
from acklast.telemetry.events import Emitter
from acklast_topology.calls import bounded, takes_nothing_in
from acklast_topology.refusal import refusal_of, remedies

_LOOK: Final = "See that RabbitMQ runs, that [broker] urls names it, and that user, password and vhost fit"
_BACKOFF_S: Final = (0.2, 0.5, 1.0, 2.0)
"""From the beginning of a try that failed to the next one; the last one repeats, jitter comes to each. Short:
it is what stands between a broker that is back and the first job."""
_HEAD_START_S: Final = 1.0
"""How long a host of the list may be silent before the next one is tried beside it."""
_TRIES: Final = 3
"""Of one host, within the time limit of the first."""
_SILENT_HEARTBEATS: Final = 1.25
"""A broker that lives sends something twice in a heartbeat's time."""
_LOOK_AT_S: Final = 1.0
_CLOSE_S: Final = 3.0
BLOCKED: Final = "the broker takes in no messages: it is short of memory or disk (see its alarms)"


class Link:
    """One connection that comes back. ``generation`` counts the connections so far."""

    def __init__(
        self,
        urls: Sequence[str],
        role: str,
        emitter: Emitter,
        *,
        heartbeat_s: int = 15,
        connect_timeout_s: float = 5.0,
        bulk: bool = False,
        current: Callable[[], Sequence[str]] | None = None,
        chance: Callable[[], float] = random.random,
        on_change: Callable[[str, str], None] = lambda role, why: None,
    ) -> None:
        """``bulk``: deliveries are read by the bulk receiver, not by the client library's own reader.

        ``current`` is asked before each connection whether other ``urls`` hold now: passwords change.

        ``on_change`` is told the role, and why the connection cannot be used: nothing where it can.
        """
        lenient.install()
        self._current = current or (lambda: urls)
        self._known = tuple(urls)
        self.heartbeat_s = heartbeat_s
        self._bulk = bulk
        self.protocol: BulkProtocol | None = None
        self._urls = self._parsed(urls)
        self._role = role
        self._emitter = emitter
        self._connect_timeout_s = connect_timeout_s
        self._chance = chance
        self._on_change = on_change
        self.why = ""
        """Why it cannot be used, as far as that is known."""
        self.changed_at = 0.0
        """When that was another one, on the monotonic clock."""
        self._connection: AbstractConnection | None = None
        self._heard: HeardProtocol | None = None
        self._left: AbstractConnection | None = None
        self._watching: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._failures = 0
        self._failed: BrokerUnavailable | None = None
        self._again_at = 0.0
        self.generation = 0

    async def connect(self) -> AbstractConnection:
        """The live connection, or a new one; each host of the list is tried once.

        All who ask share one try. Shortly after one that failed there is no other, but its error again.

        Raises:
            BrokerUnavailable: no host of the list answers.
            BrokerRefused: each answers, and refuses the login or the certificate.
        """
        async with self._lock:
            if self._connection is not None and _alive(self._connection):
                return self._connection
            if self._failed is not None and time.monotonic() < self._again_at:
                raise self._failed
            began = time.monotonic()
            try:
                self._connection = await apart(self._connect_one(), name="connect")
            except BrokerUnavailable as error:
                self._fail(error, began)
                raise
            self._failures, self._failed = 0, None
            self._is("")
            return self._connection

    async def _connect_one(self) -> AbstractConnection:
        self._renew()
        urls = tuple(self._urls)
        try:
            number, connection = await first_that_answers(
                [partial(self._open, url) for url in urls], _HEAD_START_S
            )
        except NoneAnswers as failed:
            raise _unavailable(urls, failed.errors) from failed
        # The next time this one is asked first: whoever failed before it may still be away.
        self._urls = [*urls[number:], *urls[:number]]
        self._take_up(connection, urls[number])
        return connection

    def _fail(self, error: BrokerUnavailable, began: float) -> None:
        if not self._failures:
            self._emitter.notice(
                "broker.unavailable", "error", role=self._role, error=error.what, remedy=error.remedy
            )
        self._failed = error
        pause_s = _BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)] * (0.5 + self._chance())
        self._failures += 1
        # From the beginning of the try: one that ran into its time limit has waited long enough.
        self._again_at = max(began + pause_s, time.monotonic())
        self._is(error.what)

    def _is(self, why: str) -> None:
        if why != self.why:
            self.why, self.changed_at = why, time.monotonic()
            self._on_change(self._role, why)

    def _parsed(self, urls: Sequence[str]) -> list[URL]:
        return [URL(url).update_query(heartbeat=str(self.heartbeat_s)) for url in urls]

    def _renew(self) -> None:
        current = tuple(self._current())
        if current != self._known:
            self._known, self._urls = current, self._parsed(current)
            self._emitter.notice("broker.urls_changed", role=self._role)

    async def _open(self, url: URL) -> HeardConnection:
        """Connect to one host; where it is silent, by another try beside the first.

        What was sent into a hole gets no answer though the hole is gone, and would be waited for.
        """
        tries = [partial(self._try, url)] * _TRIES
        try:
            _, connection = await first_that_answers(tries, self._connect_timeout_s / _TRIES, same_host=True)
        except NoneAnswers as failed:
            error = failed.errors[0]
        else:
            return connection
        raise error  # with the cause that it has: TLS says there what was wrong

    async def _try(self, url: URL) -> HeardConnection:
        try:
            async with bounded(self._connect_timeout_s):
                connection = await aio_pika.connect(
                    url,
                    client_properties={"connection_name": f"acklast {self._role}"},
                    connection_class=BulkConnection if self._bulk else HeardConnection,
                )
        except TimeoutError as late:
            raise TimeoutError(f"no answer within {self._connect_timeout_s:g} s") from late
        assert isinstance(connection, HeardConnection)
        return connection

    def _take_up(self, connection: HeardConnection, url: URL) -> None:
        self._heard = connection.layer.protocol
        self.protocol = self._heard if isinstance(self._heard, BulkProtocol) else None
        self.generation += 1
        if self._watching is not None:
            self._watching.cancel()
        if connection.transport is not None and self._heard is not None:
            watch = self._watch(connection.transport.connection, self._heard)
            self._watching = apart(watch, name=f"watch {self._role}")
        self._emitter.notice("broker.connected", role=self._role, host=url.host, generation=self.generation)

    # --- watching -----------------------------------------------------------------------------------

    async def _watch(self, connection: aiormq.abc.AbstractConnection, heard: HeardProtocol) -> None:
        """End a connection on which nothing comes any more, and tell when the broker takes in nothing.

        The library waits for three times as long, and says nothing of a broker that blocks.
        """
        limit_s = self.heartbeat_s * _SILENT_HEARTBEATS
        was = False
        while not connection.is_closed:
            await asyncio.sleep(min(_LOOK_AT_S, limit_s / 4))
            if self.heartbeat_s and heard.silent_s() > limit_s:
                self._emitter.notice(
                    "broker.silent", "warning", role=self._role, silent_s=round(heard.silent_s(), 1)
                )
                heard.abort()
                return
            if was != (was := takes_nothing_in(connection)):
                self._tell_blocked(was)

    def _tell_blocked(self, on: bool) -> None:
        if on:
            self._emitter.notice("broker.blocked", "warning", role=self._role, why=BLOCKED)
        else:
            self._emitter.notice("broker.unblocked", role=self._role)
        self._is(BLOCKED if on else "")

    def leave(self, connection: AbstractConnection, why: str) -> None:
        """Give up a connection that lives and is of no use, and ask the other hosts first for the next one.

        A node that is parted from its cluster may go on to answer, and bring nothing about.
        """
        if connection is not self._connection or self._heard is None or not _alive(connection):
            return
        if connection is self._left:
            return  # everybody who waits on it says so in one turn, before it is seen to be gone
        self._left = connection
        self._emitter.notice("broker.left", "warning", role=self._role, host=self._urls[0].host, why=why)
        self._urls.append(self._urls.pop(0))
        self._heard.abort()

    @property
    def connected(self) -> bool:
        """Whether it can be used now, without another try."""
        return self._connection is not None and _alive(self._connection) and not self.why

    @property
    def has_others(self) -> bool:
        """Whether there is more than one host."""
        return len(self._urls) > 1

    @property
    def pause_s(self) -> float:
        """How long until another try is due."""
        return max(0.0, self._again_at - time.monotonic())

    async def connect_insisting(self) -> AbstractConnection:
        """Like ``connect``, again and again with jittered pauses; one notice per outage, not one per try."""
        while True:
            try:
                return await self.connect()
            except BrokerUnavailable:
                await asyncio.sleep(self.pause_s)

    async def close(self) -> None:
        """Close in good order, or at once where the broker does not answer."""
        if self._watching is not None:
            self._watching.cancel()
        if self._connection is not None and not self._connection.is_closed:
            with suppress(OSError, RuntimeError, aio_pika.exceptions.AMQPError):
                async with bounded(_CLOSE_S):
                    await self._connection.close()
            if self._heard is not None:
                self._heard.abort()


def _unavailable(urls: Sequence[URL], errors: Sequence[Exception]) -> BrokerUnavailable:
    """What to tell of a list of which no host can be used.

    Raises:
        Exception: one of the errors, where it is none that a broker or a network makes.
    """
    for error in errors:
        if not isinstance(error, OSError | aio_pika.exceptions.AMQPError | TimeoutError | RuntimeError):
            raise error
    refusals = [refusal_of(error, str(url)) for url, error in zip(urls, errors, strict=True)]
    told = "; ".join(
        f"{url.host}:{url.port}: {refusal.what}" for url, refusal in zip(urls, refusals, strict=True)
    )
    remedy = remedies(refusals)
    if all(refusal.final for refusal in refusals):
        return BrokerRefused(f"no broker lets acklast in ({told})", f"{remedy}.")
    return BrokerUnavailable(f"no broker can be used ({told})", f"{remedy or _LOOK}.")


def vhost_of(url: URL) -> str:
    """The virtual host of a broker's URL."""
    return url.path.removeprefix("/") or "/"


def _alive(connection: AbstractConnection) -> bool:
    """Whether a connection can be used.

    Its own ``is_closed`` tells only of a close that we asked for: after a lost one it stays False for ever.
    """
    transport = connection.transport
    return transport is not None and not transport.connection.is_closed
