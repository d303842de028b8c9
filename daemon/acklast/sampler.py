"""Looks every quarter of a minute how the whole fleet stands, for whoever collects metrics: at the ledger's
counts on a connection of its own, and at our lanes' queues. Nothing waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

from aio_pika.abc import AbstractConnection
from aiormq.exceptions import AMQPError

from acklast.chores import Chore
from acklast.config import Config
from acklast.errors import AcklastError
from acklast.fleet import Head, Sampled, samples_of
from acklast.lane_queues import Queues, look_at, messages_in
from acklast.ledger.backlog import Backlog
from acklast.ledger.sampling import Sampling
from acklast.ledger.standing import Standing
from acklast.telemetry.events import Emitter, Event, Settled
from acklast.telemetry.metric import Sample
from acklast_topology.calls import only_real_cancellation

EVERY_S: Final = 15.0
_FIRST_S: Final = 2.0
"""The first look comes sooner: who looks at a daemon that has just started wants to see something."""

Reckon = Callable[[Config, Backlog, Standing, Mapping[str, int]], Sequence[Sample]]
"""What else follows from what was found: the messages in each lane's queues come last."""


def nothing(_: Config, __: Backlog, ___: Standing, ____: Mapping[str, int]) -> Sequence[Sample]:
    return ()


class Sampler(Chore):
    """A sink of events too: what a job had waited when it was started tells how old the queue's head is."""

    name = "sampler"

    def __init__(
        self,
        config: Config,
        sampling: Sampling,
        connect: Callable[[], Awaitable[AbstractConnection]] | None,
        emitter: Emitter,
        *,
        chance: Callable[[], float],
        reckon: Reckon = nothing,
        every_s: float = EVERY_S,
    ) -> None:
        """``connect`` is None where nobody collects: then it only keeps the counts short."""
        self._config = config
        self._sampling = sampling
        self._connect = connect
        self._emitter = emitter
        self._chance = chance
        self._reckon = reckon
        self._every_s = every_s
        self._heads: dict[str, Head] = {}
        self._moved: dict[str, float] = {}
        """When an attempt of each lane was over last."""
        self._waiting: dict[str, float] = {}
        """Since when each lane's queue has never been seen empty."""
        self._found: Sampled | None = None

    def __call__(self, event: Event) -> None:
        if not isinstance(event, Settled) or event.outcome is None:
            return
        now = self._moved[event.lane] = time.monotonic()
        if event.queue_s is not None:
            pace_s = event.pace_s or 0.0
            started_at = now - max(0.0, (event.total_s or 0.0) - pace_s)
            self._heads[event.lane] = Head(event.priority, event.queue_s + pace_s, started_at)

    def samples(self) -> Iterator[Sample]:
        """How the fleet stood at the last look; nothing before the first one."""
        if self._found is not None:
            yield from samples_of(self._found, self._config.lanes, time.monotonic())

    def follow(self, config: Config) -> None:
        """Go by ``config``, which has the same lanes: a command that reads the file goes by it, too."""
        self._config = config

    async def run(self) -> None:
        await asyncio.sleep(min(_FIRST_S, self._every_s) * self._chance())
        while True:
            try:
                with only_real_cancellation():
                    await self.once()
                self.fine()
            except Exception as error:
                self.complain(error)
            await asyncio.sleep(self._every_s * (0.75 + self._chance() / 2))

    async def close(self) -> None:
        await super().close()
        await self._sampling.close()

    async def once(self) -> None:
        """Look, and keep what there is to look at short.

        Raises:
            LedgerUnavailable: what was found before stays, and grows old.
        """
        queues = await self._queues()
        began = time.monotonic()
        backlog, standing = await self._sampling.read(self._config.lanes)
        now = time.monotonic()
        held = {lane: sum(one.held for one in views if one.live) for lane, views in standing.lanes.items()}
        heads = dict(self._oldest(queues, held, now))
        others: Sequence[Sample] = ()
        if backlog.complete:
            # With hundreds of runs it takes as long as dozens of jobs, which go on meanwhile.
            found = backlog, standing, messages_in(queues)
            others = await asyncio.to_thread(self._reckon, self._config, *found)
        self._found = Sampled(backlog, now, now - began, queues, heads, others)
        await self._sampling.tidy(backlog)

    async def _queues(self) -> Mapping[str, Queues]:
        """None where they cannot be seen now: that the broker is away others tell."""
        if self._connect is None:
            return {}
        try:
            return await look_at(await self._connect(), self._config, self._config.lanes)
        except (AcklastError, AMQPError, ConnectionError, TimeoutError):
            return {}

    def _oldest(
        self, queues: Mapping[str, Queues], held: Mapping[str, int], now: float
    ) -> Iterator[tuple[str, Head]]:
        """The oldest of what waits in each lane, of jobs that the ledger does not know yet.

        It came after the one that was started last, if a little. Where no message says when it was published,
        it has waited since the queue was empty at least, or since something was started from it.
        """
        for lane, one in queues.items():
            if not (one.ready or held.get(lane)):
                self._waiting.pop(lane, None)
                continue
            since = self._waiting.setdefault(lane, now)
            head = self._heads.get(lane)
            if head is not None and head.started_at >= since - self._every_s:
                yield lane, head
            else:
                yield lane, Head("normal", 0.0, max(since, self._moved.get(lane, since)))
