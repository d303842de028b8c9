"""Makes the plan true on a broker, and says of each object how it stands.

Each object is declared on a throw-away channel: the broker ends a channel at the first declaration that it
does not like, and the objects after it must still be looked at.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelClosed,
    ChannelInvalidStateError,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from acklast_topology.calls import ConnectionDied, bounded
from acklast_topology.finding import Finding, Found, missing, refused
from acklast_topology.plan import Binding, Exchange, Plan, Queue

TIMEOUT_S: Final = 10.0
"""For one object. A broker under an alarm opens no channel, and must not hold a start for ever."""

_INEQUIVALENT: Final = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for .*?: (?P<values>.*)", re.DOTALL
)

_LOCKED: Final = (
    "`acklast topology apply --migrate` has, for some seconds, while it replaces it; else find out who has"
)

Declare = Callable[[AbstractChannel], Awaitable[Any]]


async def apply(connection: AbstractConnection, plan: Plan) -> list[Finding]:
    """Declare everything in the plan, in its order. Safe to repeat; never deletes or changes anything.

    ``connection`` must be a plain one: the robust one declares again for ever what a broker refuses.

    Raises:
        ConnectionError: the connection ended.
        TimeoutError: the broker did not answer within ``TIMEOUT_S``.
    """
    found = [await _exchange(connection, exchange) for exchange in plan.exchanges]
    found += [await _queue(connection, queue) for queue in plan.queues]
    unfit = {(finding.kind, finding.name) for finding in found if not finding.fit}
    return found + [await _binding(connection, binding, unfit) for binding in plan.bindings]


async def compare(connection: AbstractConnection, plan: Plan) -> list[Finding]:
    """Hold the arguments of what is there against the plan's, by declaring it again; makes nothing.

    For a user that may configure it; others are answered ``refused``. What is not there is ``missing``.

    Raises:
        ConnectionError: the connection ended.
        TimeoutError: the broker did not answer within ``TIMEOUT_S``.
    """
    found = []
    for exchange in plan.exchanges:
        here = await exists(connection, "exchange", exchange.name)
        found.append(await _exchange(connection, exchange) if here.fit else here)
    for queue in plan.queues:
        here = await exists(connection, "queue", queue.name)
        found.append(await _queue(connection, queue) if here.fit else here)
    return found


async def exists(connection: AbstractConnection, kind: str, name: str) -> Finding:
    """Whether an exchange or queue is there. Needs no permission on it, on 4.3 any one: else it is unseen."""

    async def look(channel: AbstractChannel) -> None:
        if kind == "exchange":
            await channel.exchange_declare(name, passive=True)
        else:
            await channel.queue_declare(name, passive=True)

    found = await _attempt(connection, kind, name, look)
    if found.status is Found.REFUSED and "ACCESS_REFUSED" in found.detail:
        return Finding(kind, name, Found.UNSEEN, f"{kind} {name} cannot be seen by this user: {found.detail}")
    return found


async def ready(connection: AbstractConnection, queue: str) -> tuple[int, int]:
    """How many messages are ready in a queue, and its consumers; none where it is not there or not seen.

    A quorum queue also counts a consumer that ended and holds messages still. A busy one may answer (0, 0)
    whatever it holds: one answer proves nothing.
    """
    counts = 0, 0

    async def look(channel: AbstractChannel) -> None:
        nonlocal counts
        there = await channel.queue_declare(queue, passive=True)
        counts = there.message_count or 0, there.consumer_count or 0

    await _attempt(connection, "queue", queue, look)
    return counts


async def _exchange(connection: AbstractConnection, exchange: Exchange) -> Finding:
    async def declare(channel: AbstractChannel) -> None:
        await channel.exchange_declare(
            exchange.name, exchange_type=exchange.type, durable=True, arguments=dict(exchange.arguments)
        )

    return await _declare(connection, "exchange", exchange.name, declare)


async def _queue(connection: AbstractConnection, queue: Queue) -> Finding:
    async def declare(channel: AbstractChannel) -> None:
        await channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))

    return await _declare(connection, "queue", queue.name, declare)


async def _binding(connection: AbstractConnection, binding: Binding, unfit: set[tuple[str, str]]) -> Finding:
    """Bind, unless one end is not as planned: it may be somebody else's, and is left alone."""
    wrong = unfit.intersection((("exchange", binding.source), ("queue", binding.queue)))
    if wrong:
        ends = " and ".join(f"{kind} {name}" for kind, name in sorted(wrong))
        return missing("binding", name_of(binding), f"not bound: {ends} is not as planned")

    async def bind(channel: AbstractChannel) -> None:
        await channel.queue_bind(binding.queue, binding.source, binding.key)

    return await _attempt(connection, "binding", name_of(binding), bind)


async def _declare(connection: AbstractConnection, kind: str, name: str, declare: Declare) -> Finding:
    """Look first: a declaration that succeeds does not say whether it made the object."""
    before = await exists(connection, kind, name)
    after = await _attempt(connection, kind, name, declare)
    if after.status is Found.PRESENT and before.status is Found.MISSING:
        return Finding(kind, name, Found.CREATED)
    return after


async def _attempt(connection: AbstractConnection, kind: str, name: str, declare: Declare) -> Finding:
    try:
        async with throw_away_channel(connection) as channel:
            await declare(channel)
    except ChannelNotFoundEntity as error:
        return missing(kind, name, str(error))
    except ChannelAccessRefused as error:
        return refused(kind, name, str(error))
    except ChannelPreconditionFailed as error:
        return differs(kind, name, str(error))
    except ChannelLockedResource:
        return Finding(kind, name, Found.REFUSED, f"another connection has {kind} {name} for itself", _LOCKED)
    except ChannelClosed as error:
        return refused(kind, name, str(error))
    return Finding(kind, name, Found.PRESENT)


@asynccontextmanager
async def throw_away_channel(connection: AbstractConnection) -> AsyncIterator[AbstractChannel]:
    """A channel for something that the broker may end it for.

    Raises:
        ConnectionError: the connection ended.
        TimeoutError: it took longer than ``TIMEOUT_S``.
    """
    try:
        async with bounded(TIMEOUT_S), connection.channel(publisher_confirms=False) as channel:
            yield await channel.get_underlay_channel()
    except (ChannelInvalidStateError, RuntimeError) as error:
        raise ConnectionDied(f"the connection ended: {error}") from error


def differs(kind: str, name: str, text: str) -> Finding:
    """Read the broker's complaint: which argument, what was asked for, what it has."""
    found = _INEQUIVALENT.search(text)
    if found is None:
        return refused(kind, name, text)
    return Finding(
        kind,
        name,
        Found.DIFFERS,
        f"argument {found['argument']} differs: {found['values']}",
        f"`acklast topology apply --migrate` replaces {name} and loses nothing; if it is not acklast's, use "
        "another namespace",
    )


def name_of(binding: Binding) -> str:
    """A binding as people write it."""
    return f"{binding.source} -> {binding.queue} [{binding.key}]"
