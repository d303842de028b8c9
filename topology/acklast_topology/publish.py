"""A confirmed publisher of jobs: many in flight, one result for each, over connections that may die.

from acklast_topology import Job, Publisher

async with Publisher.connect("amqp://localhost/") as publisher:
    job = Job.json("reminders", "2025-06:4711", {"property": 4711}, type="rent.reminder.v1")
    result = await publisher.publish(job)
    print(result.status, result.detail)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aio_pika
from aio_pika.abc import AbstractConnection
from aiormq.exceptions import AMQPError, ChannelNotFoundEntity

from acklast_topology.calls import bounded, only_real_cancellation
from acklast_topology.chunks import Chunking
from acklast_topology.culprit import Largest
from acklast_topology.dispatch import Parcel, dispatched, pause_s
from acklast_topology.enqueue import REPEATS, enqueued
from acklast_topology.items import Enqueued, Given, Manifest, require_run
from acklast_topology.job import Job
from acklast_topology.names import Names
from acklast_topology.refusal import Refusal, refusal_of, remedies
from acklast_topology.sender import Letter, Sender, Sent, Status

__all__ = ["BrokerUnreachable", "Job", "Publisher", "Result", "Sender", "Sent", "Status", "TopologyMissing"]


class BrokerUnreachable(ConnectionError):  # noqa: N818 - named for what is true
    """No broker of the list can be used. The message names each and why."""


class TopologyMissing(LookupError):  # noqa: N818 - named for what is true
    """The ingress exchange is not on the broker."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one job's publish. ``detail`` is a sentence where it was not confirmed."""

    job: Job
    status: Status
    detail: str = ""


class Publisher:
    """Publishes jobs to the ingress exchange. Make one with ``connect`` and use it in ``async with``.

    After a connection died, the next publish connects again; a URL that fails makes way for the next one.
    """

    def __init__(
        self, urls: Sequence[str], names: Names, in_flight: int, timeout_s: float, retries: int
    ) -> None:
        self._urls = tuple(urls)
        self._names = names
        self._in_flight = in_flight
        self._timeout_s = timeout_s
        self._retries = retries
        self._slots = asyncio.Semaphore(in_flight)
        self._next_url = 0
        self._connection: AbstractConnection | None = None
        self._sender: Sender | None = None
        self._opening: asyncio.Task[Sender] | None = None
        self._largest = Largest()

    @property
    def exchange(self) -> str:
        """Where it publishes to."""
        return self._names.ingress

    @classmethod
    def connect(
        cls,
        urls: str | Sequence[str],
        *,
        names: Names | None = None,
        in_flight: int = 256,
        timeout_s: float = 10.0,
        retries: int = 0,
    ) -> Publisher:
        """A publisher for the first broker of ``urls`` that answers; ``async with`` connects it.

        ``in_flight`` bounds the messages that wait for their confirm. ``timeout_s`` bounds each of them, and
        each connect. ``retries`` repeats a publish whose result is unknown; a repeat is safe, because the
        ledger removes duplicates.

        Raises:
            ValueError: no AMQP URL, or a number that is too small.
            BrokerUnreachable: (from ``async with``) no broker answers.
            TopologyMissing: (from ``async with``) the broker has no ingress exchange of this namespace.
        """
        listed = (urls,) if isinstance(urls, str) else tuple(urls)
        if any(urlsplit(url).scheme not in ("amqp", "amqps") for url in listed):
            raise ValueError("a broker's URL starts with amqp:// or amqps://")
        if not listed or in_flight < 1 or timeout_s <= 0 or retries < 0:
            raise ValueError(
                "a publisher needs a URL, in_flight of 1 or more, timeout_s above 0, retries of 0 or more"
            )
        return cls(listed, names or Names(), in_flight, timeout_s, retries)

    async def __aenter__(self) -> Self:
        try:
            await self._open_sender()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the connection go. What still waits for its confirm becomes ``unknown``."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        await self._drop_connection()

    async def publish(self, job: Job) -> Result:
        """Publish one job and wait for the broker's word. Never raises for the broker or the connection."""
        async with self._slots:
            sent = await self._send(job)
            for repeat in range(self._retries):
                if sent.status is not Status.UNKNOWN:
                    break
                await asyncio.sleep(pause_s(repeat))
                sent = await self._send(job)
        return Result(job, sent.status, sent.detail)

    def publish_many(self, jobs: Iterable[Job] | AsyncIterable[Job]) -> AsyncIterator[Result]:
        """Publish jobs as fast as the broker confirms them; yields each result as it comes.

        In constant memory: at most ``in_flight`` jobs are taken from ``jobs`` whose result was not yet taken
        from here. An exception out of ``jobs`` is raised after the results of what was taken before it.
        """
        return self._results(jobs)

    def enqueue_many(
        self,
        jobs: Iterable[Given] | AsyncIterable[Given],
        *,
        run: str,
        manifest: Manifest,
        stop: bool = False,
        retries: int = REPEATS,
        chunking: Chunking | None = None,
    ) -> AsyncIterator[Enqueued]:
        """Make jobs a run's: promise them to the ledger in chunks, publish them, yield each item's fate.

        As fast as the broker confirms, in constant memory, and safe to repeat as a whole: what is known and
        started is left alone, what was promised and never started is published again. An item that is no job
        (``NoJob``, or a job of another run) is told as malformed, and the rest goes on; with ``stop`` nothing
        is promised after the chunk in which an item was not accepted. ``retries`` is how often a publish
        whose result is unknown is repeated.

        Raises:
            ValueError: ``run`` is no valid id of a run.
            Exception: (while it is read) what ``jobs`` or ``manifest`` raise, after the fates of all that was
                promised before.
        """
        require_run(run)
        wanted = replace(chunking or Chunking(), ends_at_malformed=stop)

        def dispatch(parcels: Iterable[Parcel] | AsyncIterable[Parcel]) -> AsyncIterator[Parcel]:
            return dispatched(self._send_all, parcels, self._in_flight, retries)

        return enqueued(dispatch, jobs, run, manifest, wanted, stop=stop)

    async def _results(self, jobs: Iterable[Job] | AsyncIterable[Job]) -> AsyncIterator[Result]:
        parcels = dispatched(self._send_all, _parcels(jobs), self._in_flight, self._retries)
        async with aclosing(parcels):  # type: ignore[type-var]
            async for parcel in parcels:
                assert parcel.job is not None
                yield Result(parcel.job, parcel.sent.status, parcel.sent.detail)

    async def _send(self, job: Job) -> Sent:
        sender = await self._sender_or_why_not()
        if isinstance(sender, Sent):
            return sender
        sent = await sender.send(
            self._names.ingress,
            job.routing_key,
            job.payload,
            job.properties(datetime.now(UTC)),
            self._timeout_s,
        )
        self._leave_mute(sender)
        return sent

    async def _send_all(self, parcels: Sequence[Parcel], settle: Callable[[Parcel, Sent], None]) -> None:
        sender = await self._sender_or_why_not()
        if isinstance(sender, Sent):
            for parcel in parcels:
                settle(parcel, sender)
            return

        def letter(parcel: Parcel, job: Job) -> Letter:
            def settled(sent: Sent) -> None:
                self._leave_mute(sender)
                settle(parcel, sent)

            return Letter(job.routing_key, job.payload, job.encoded, settled)

        letters = [letter(parcel, parcel.job) for parcel in parcels if parcel.job is not None]
        await sender.send_all(self._names.ingress, letters, self._timeout_s)

    async def _sender_or_why_not(self) -> Sender | Sent:
        try:
            with only_real_cancellation():  # close() cancels the attempt, not those who wait for it
                return await self._open_sender()
        except (ConnectionError, LookupError, TimeoutError) as error:
            return Sent(Status.UNKNOWN, f"not sent: {error or type(error).__name__}")

    def _leave_mute(self, sender: Sender) -> None:
        if sender.mute and sender is self._sender and not sender.blocked:
            # A node that is parted from its cluster takes everything and confirms nothing.
            self._sender, self._next_url = None, self._next_url + 1

    async def _open_sender(self) -> Sender:
        """The sender in use, or a new one; all who wait for a new one share one attempt and its error."""
        if self._sender is not None and not self._sender.closed and not self._sender.stale:
            return self._sender
        if self._opening is None:
            self._opening = asyncio.create_task(self._reopen())
            self._opening.add_done_callback(self._opened)
        # Shielded: the attempt is everybody's, and one caller that is cancelled must not end it.
        return await asyncio.shield(self._opening)

    def _opened(self, opening: asyncio.Task[Sender]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # seen, also where nobody waits for it any more

    async def _reopen(self) -> Sender:
        last, connection = self._sender, self._connection
        if last is not None and not last.closed and connection is not None:
            with suppress(ConnectionError, TimeoutError):
                self._sender = await Sender.open(
                    connection, timeout_s=self._timeout_s, after=last, largest=self._largest
                )
                await last.retire()
                return self._sender
        await self._drop_connection()
        refusals: list[Refusal] = []
        failures: list[str] = []
        for _ in self._urls:
            url = self._urls[self._next_url % len(self._urls)]
            try:
                return await self._open(url)
            except (AMQPError, OSError, RuntimeError) as error:
                refusals.append(refusal_of(error, url))
                failures.append(f"{_without_password(url)}: {refusals[-1].what}")
                self._next_url += 1
                await self._drop_connection()
        raise BrokerUnreachable(
            f"no broker can be used ({'; '.join(failures)}). "
            + (remedies(refusals) or "Check the URLs and the brokers")
        )

    async def _open(self, url: str) -> Sender:
        async with bounded(self._timeout_s):
            self._connection = await aio_pika.connect(
                url, client_properties={"connection_name": "acklast publisher"}
            )
            await self._require_ingress(self._connection)
        self._sender = await Sender.open(self._connection, timeout_s=self._timeout_s, largest=self._largest)
        return self._sender

    async def _require_ingress(self, connection: AbstractConnection) -> None:
        """See that there is something to publish to: without it each publish ends the channel."""
        try:
            async with connection.channel(publisher_confirms=False) as channel:
                await channel.declare_exchange(self._names.ingress, passive=True)
        except ChannelNotFoundEntity:
            raise TopologyMissing(
                f"the broker has no exchange {self._names.ingress!r}. Run `acklast topology apply` first"
            ) from None

    async def _drop_connection(self) -> None:
        connection, self._connection, self._sender = self._connection, None, None
        if connection is not None and not connection.is_closed:
            try:
                async with bounded(self._timeout_s):
                    await connection.close()
            except (AMQPError, OSError, RuntimeError):
                pass  # it is gone, which is all that was wanted


async def _parcels(jobs: Iterable[Job] | AsyncIterable[Job]) -> AsyncIterator[Parcel]:
    if isinstance(jobs, AsyncIterable):
        async for job in jobs:
            yield Parcel(job)
    else:
        for job in jobs:
            yield Parcel(job)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@", 1)).geturl()
