"""Replaces a queue or an exchange whose arguments differ, under running publishers and daemons.

A queue's arguments cannot be changed. So another queue stands in for it: bound first, then the old one is
unbound, emptied into it and deleted, made anew, and filled again. Every step leaves each message in at least
one queue, and what is on the broker says which step is next: who runs this again goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from aiormq.exceptions import ChannelLockedResource, ChannelPreconditionFailed

from acklast.errors import TopologyError
from acklast.moving import Emptiness, Mover, Tell
from acklast.ways import ALONE, Rows, Way, asking, open_ways, shut_ways, ways_of
from acklast_topology.declare import apply, exists, ready
from acklast_topology.finding import Finding, Found
from acklast_topology.names import Names
from acklast_topology.plan import Binding, Exchange, Plan, Queue, bindings_of

_AT_ONCE: Final = 4
"""Queues that are replaced at the same time."""
_TRIES: Final = 5
"""A daemon of other settings that declares at just the moment when a name is free makes its own queue."""
_PAUSE_S: Final = 0.5
APART_S: Final = 3.0
"""Between the end of a queue and the next one of its name. Made again at once, RabbitMQ (3.10) tells the old
queue's consumers nothing: it hands the new one's messages to them, and they receive none. Meanwhile the name
is barred: a daemon of other settings would have made the queue again as it was within a second."""


@dataclass(frozen=True, slots=True)
class Replacing:
    """What replacing needs. ``bindings`` are as the management API lists them; ``longest_s`` is how long
    consumers may hold what is in a queue."""

    connection: AbstractConnection
    names: Names
    bindings: Rows
    emptiness: Emptiness
    tell: Tell
    longest_s: float = 600.0
    apart_s: float = APART_S

    async def all(self, plan: Plan, there: Collection[str], differ: Sequence[Finding]) -> list[Finding]:
        """Replace what differs, and finish what was begun; what was done. ``there``: the queues by name.

        Raises:
            TopologyError: it cannot go on. Nothing is lost, and it may be run again.
        """
        wrong = {(finding.kind, finding.name) for finding in differ}
        exchanges = [one for one in plan.exchanges if ("exchange", one.name) in wrong]
        queues = [
            one for one in plan.queues if ("queue", one.name) in wrong or self.names.moving(one.name) in there
        ]
        for exchange in exchanges:
            await self.exchange(exchange, plan)
        leave = asyncio.Semaphore(_AT_ONCE)

        async def replace(queue: Queue) -> None:
            async with leave:
                await self.queue(queue)

        # One that cannot go on does not stop the others half-way.
        ends = await asyncio.gather(*map(replace, queues), return_exceptions=True)
        for error in (end for end in ends if isinstance(end, BaseException)):
            raise error
        done = [("exchange", one.name) for one in exchanges] + [("queue", one.name) for one in queues]
        return [Finding(kind, name, Found.MIGRATED, "replaced, with all that it held") for kind, name in done]

    # --- a queue ----------------------------------------------------------------------------------

    async def queue(self, queue: Queue) -> None:
        """Replace one queue by way of the one that stands in for it, from whatever step is next.

        Raises:
            TopologyError: it cannot go on. Nothing is lost, and it may be run again.
        """
        stand_in = Queue(self.names.moving(queue.name), queue.arguments)
        ways = ways_of(self.names, queue.name, self.bindings)
        left = _TRIES
        while await self._made(queue) is Found.DIFFERS:
            if not left:
                raise TopologyError(
                    f"queue {queue.name} was made again as it was while it was being replaced",
                    "A daemon with other settings did: stop it or update it, and run this again",
                )
            left -= 1
            await self._clear(queue, stand_in, ways)
        self.tell("made", queue.name, 0)
        await open_ways(self.connection, queue.name, ways)
        self.tell("bound", queue.name, 0)
        if (await exists(self.connection, "queue", stand_in.name)).fit:
            await shut_ways(self.connection, stand_in.name, ways)
            self.tell("unbound", stand_in.name, 0)
            await self._empty(stand_in.name, into=queue.name)
            await self._delete(stand_in.name)

    async def _clear(self, queue: Queue, stand_in: Queue, ways: list[Way]) -> None:
        """Have another queue stand in for one, and delete that."""
        # One that an interrupted change has left is good, whatever its arguments.
        await self._made(stand_in)
        self.tell("made", stand_in.name, 0)
        await open_ways(self.connection, stand_in.name, ways)
        self.tell("bound", stand_in.name, 0)
        await shut_ways(self.connection, queue.name, ways)
        self.tell("unbound", queue.name, 0)
        await self._empty(queue.name, into=stand_in.name)
        await self._delete_for_now(queue)

    async def _made(self, queue: Queue) -> Found:
        [found] = await apply(self.connection, Plan((), (queue,), ()))
        if found.status is Found.REFUSED:
            raise TopologyError(f"queue {queue.name} cannot be made: {found.detail}", found.remedy)
        return found.status

    async def _empty(self, source: str, *, into: str) -> None:
        """Move until nothing is left, nor held by anybody, nor on its way out by a time to live."""
        to = bindings_of(self.names, into)[-1]
        # Through the namespace's own exchange: the default one would need a right beyond the namespace. What
        # came for no lane keeps its routing key, which says for which.
        key = None if to.source == self.names.unrouted else to.key
        mover, gives_up_at, told = Mover(self.connection, self.tell), 0.0, False
        while True:
            if await mover.move(source, to.source, key):
                gives_up_at = 0.0
            if await self.emptiness.seen(source):
                return
            messages, consumers = await ready(self.connection, source)
            now = time.monotonic()
            gives_up_at = gives_up_at or now + self.longest_s
            if consumers and not messages and not told:
                self.tell("held", source, consumers)
                told = True
            if now > gives_up_at:
                raise TopologyError(
                    f"{consumers} consumers hold messages of queue {source} for longer than"
                    f" {self.longest_s:g} s",
                    "Pause its lane with `acklast lanes pause` or stop its daemons, and run this again",
                )
            await asyncio.sleep(_PAUSE_S)

    async def _delete(self, queue: str) -> None:
        async with asking(self.connection) as channel:
            await channel.queue_delete(queue)
        self.tell("deleted", queue, 0)

    async def _delete_for_now(self, queue: Queue) -> None:
        """Delete a queue, have nobody else make one of its name for a while, then make it anew.

        Between two commands somebody may be faster: whoever asks for the queue next finds that it differs.
        """
        barred = False
        async with asking(self.connection) as channel:
            await channel.queue_delete(queue.name)
            self.tell("deleted", queue.name, 0)
            with suppress(ChannelPreconditionFailed, ChannelLockedResource):
                await channel.queue_declare(queue.name, exclusive=True, arguments=ALONE)
                barred = True
        await asyncio.sleep(self.apart_s)
        if barred:
            async with asking(self.connection) as channel:
                await channel.queue_delete(queue.name)
                with suppress(ChannelPreconditionFailed, ChannelLockedResource):
                    await channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))

    # --- an exchange ------------------------------------------------------------------------------

    async def exchange(self, exchange: Exchange, plan: Plan) -> None:
        """Delete an exchange, make it anew and bind again all that was bound, at once.

        In between a publish finds no exchange and is not confirmed, or no lane, and is sent on from the
        unrouted queue.
        """
        ours = [
            row
            for one in plan.bindings
            if one.source == exchange.name and (await exists(self.connection, "queue", one.queue)).fit
            for row in [_row(one)]
        ]
        theirs = [row for row in self.bindings if _is_of(row, exchange.name) and row not in ours]
        async with asking(self.connection) as channel:
            await channel.exchange_delete(exchange.name)
            await channel.exchange_declare(
                exchange.name, exchange_type=exchange.type, durable=True, arguments=dict(exchange.arguments)
            )
            for row in [*ours, *theirs]:
                await _bind_again(channel, row)
        self.tell("made", exchange.name, 0)


def _row(binding: Binding) -> dict[str, Any]:
    return {
        "source": binding.source,
        "destination": binding.queue,
        "destination_type": "queue",
        "routing_key": binding.key,
        "arguments": {},
    }


def _is_of(row: dict[str, Any], exchange: str) -> bool:
    """Whether a binding goes from or to an exchange."""
    into = row["destination_type"] == "exchange" and row["destination"] == exchange
    return bool(into or row["source"] == exchange)


async def _bind_again(channel: AbstractChannel, row: dict[str, Any]) -> None:
    source, target, key = row["source"], row["destination"], row["routing_key"]
    if row["destination_type"] == "exchange":
        await channel.exchange_bind(target, source, routing_key=key, arguments=row["arguments"])
    else:
        await channel.queue_bind(target, source, key, arguments=row["arguments"])
