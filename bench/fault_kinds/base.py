"""What a fault is, what it may get hold of, and the register of all of them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, TypeVar
from urllib.parse import quote, urlsplit

import aio_pika

from acklast_topology.names import Names
from bench.children import Child
from bench.contenders.drill_lane import LANE
from bench.queues import BenchError
from dev.postgres import Cluster
from dev.proxy import Proxy
from dev.rabbitmq import Node
from dev.stack import Stack

NAMES: Final = Names()
LEDGER: Final = "ledger"
BROKER: Final = "broker"
_QUIET_S: Final = 30.0
_POLL_S: Final = 0.05
_ACKED_S: Final = 0.5
"""From the last effect until its ack has surely gone out."""


async def _no_load(jobs: int) -> None:
    raise AssertionError(f"no load yet that could publish {jobs} jobs")


@dataclass(slots=True)
class Scene:
    """One drill's own part of the servers, and the daemons on it.

    ``url`` and ``dsn`` are the servers' own addresses, ``vhost`` and the database this drill's alone.
    """

    stack: Stack
    url: str
    dsn: str
    vhost: str
    directory: Path
    ways: dict[str, Proxy] = field(default_factory=dict)
    """The proxies that the daemons go through, by ``BROKER`` and ``LEDGER``: what the fault asked for."""
    daemons: list[Child] = field(default_factory=list)
    publishing: asyncio.Event = field(default_factory=asyncio.Event)
    """The load comes while this is set."""
    burst: Callable[[int], Awaitable[None]] = _no_load
    """Publishes so many jobs more at once, and returns when they are confirmed."""
    is_done: Callable[[], bool] = lambda: True
    """Whether every job that was published has had its effect."""

    @asynccontextmanager
    async def quiet(self) -> AsyncIterator[None]:
        """Hold the load up, and wait until no job is open: what is deleted then takes none with it.

        Raises:
            TimeoutError: they do not get done.
        """
        self.publishing.clear()
        try:
            async with asyncio.timeout(_QUIET_S):
                while not self.is_done():  # noqa: ASYNC110 - looks into a file
                    await asyncio.sleep(_POLL_S)
                await asyncio.sleep(_ACKED_S)
            yield
        finally:
            self.publishing.set()

    @property
    def node(self) -> Node:
        """The broker's node."""
        assert self.stack.broker.node is not None, "the drill starts servers of its own"
        return self.stack.broker.node

    @property
    def cluster(self) -> Cluster:
        """The ledger's Postgres."""
        assert self.stack.ledger.cluster is not None, "the drill starts servers of its own"
        return self.stack.ledger.cluster

    @property
    def database(self) -> str:
        return urlsplit(self.dsn).path.removeprefix("/")

    @property
    def daemons_url(self) -> str:
        """The broker as the daemons are to reach it."""
        return self.ways[BROKER].url if BROKER in self.ways else self.url

    @property
    def daemons_dsn(self) -> str:
        """The ledger as the daemons are to reach it."""
        return self.ways[LEDGER].url if LEDGER in self.ways else self.dsn

    def delete_queue(self, name: str) -> None:
        path = f"queues/{quote(self.vhost, safe='')}/{quote(name, safe='')}"
        self.stack.broker.management.call("DELETE", path)

    async def resend_unrouted(self) -> None:
        """What came while nothing was bound goes in again, as an operator would have it."""
        async with await aio_pika.connect(self.url) as connection, connection.channel() as channel:
            queue = await channel.get_queue(NAMES.unrouted)
            ingress = await channel.get_exchange(NAMES.ingress)
            while (message := await queue.get(fail=False)) is not None:
                again = aio_pika.Message(
                    message.body,
                    headers=message.headers,
                    content_type=message.content_type,
                    type=message.type,
                    delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                )
                await ingress.publish(again, LANE)
                await message.ack()


class Fault(ABC):
    """Something that goes wrong under load. ``raise_`` begins it, ``end`` puts it right.

    Both are called once each, in this order, ``lasts_s`` apart. A fault that is over by itself (a connection
    that is reset) has ``lasts_s = 0`` and nothing to end.
    """

    name: ClassVar[str]
    lasts_s: ClassVar[float] = 0.0
    """How long it lasts, in seconds, whatever time the drill has."""
    within_s: ClassVar[float] = 10.0
    """How soon after its end the daemons must do jobs again."""
    ways: ClassVar[tuple[str, ...]] = ()
    """What the daemons reach through a proxy: of ``BROKER`` and ``LEDGER``."""
    daemons: ClassVar[int] = 2
    concurrency: ClassVar[int] = 20
    """Of each daemon. A job takes 20 ms."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    @classmethod
    @contextmanager
    def servers(cls, shared: Stack) -> Iterator[Stack]:
        """The servers to use: those of all drills, unless a fault needs others."""
        yield shared

    def publisher_urls(self) -> list[str]:
        """Where the load is published."""
        return [self.scene.url]

    def broker_lines(self) -> list[str]:
        """The daemons' ``[broker]``."""
        return [f'url = "{self.scene.daemons_url}"']

    def ledger_lines(self) -> list[str]:
        """The daemons' ``[ledger]``."""
        return [f'dsn = "{self.scene.daemons_dsn}"']

    def lane_lines(self) -> list[str]:
        """More of the lane's settings."""
        return []

    async def begin(self) -> None:
        """Before the daemons start."""
        return

    @abstractmethod
    async def raise_(self) -> None:
        """Begin it. It counts as raised from here on."""

    async def end(self) -> None:
        """Put it right. It counts as ended when this returns."""
        return

    async def after(self) -> None:
        """When the load is published: what an operator has to do for the jobs that the fault led astray."""
        return


KINDS: Final[dict[str, type[Fault]]] = {}
_Kind = TypeVar("_Kind", bound=type[Fault])


def kind(fault: _Kind) -> _Kind:
    """Register a fault, by its name."""
    assert fault.name not in KINDS, fault.name
    KINDS[fault.name] = fault
    return fault


def chosen(names: list[str]) -> list[type[Fault]]:
    """The faults of these names, or all.

    Raises:
        BenchError: there is none of that name.
    """
    if unknown := [name for name in names if name not in KINDS]:
        raise BenchError(f"no fault is called {', '.join(unknown)}; there are {', '.join(KINDS)}")
    return [KINDS[name] for name in names] if names else list(KINDS.values())
