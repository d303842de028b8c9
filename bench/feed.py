"""Keeps several lanes supplied with jobs while they are worked on: for runs that are longer than a queue."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from itertools import count
from types import TracebackType
from typing import Final, Self

import aio_pika
import aiormq
from aiormq import spec

from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from bench.queues import BenchError

_NAMES: Final = Names()
_EVERY_S: Final = 0.2
_BURST: Final = 200


class Feed:
    """``wanted`` jobs are to be had in each lane. An asynchronous context manager.

    ``lowest`` is the fewest that were to be had since somebody set it last.
    """

    def __init__(self, url: str, wanted: Mapping[str, int]) -> None:
        self._url = url
        self._wanted = wanted
        self._numbers: dict[str, Iterator[int]] = {lane: count() for lane in wanted}
        self._task: asyncio.Task[None] | None = None
        self.lowest = dict(wanted)

    async def __aenter__(self) -> Self:
        self._connection = await aio_pika.connect(self._url)
        findings = await apply(self._connection, plan_for(_NAMES, list(self._wanted)))
        if bad := [finding for finding in findings if not finding.fit]:
            raise BenchError(f"the topology does not fit: {bad}")
        assert self._connection.transport is not None
        channel = await self._connection.transport.connection.channel(publisher_confirms=False)
        assert isinstance(channel, aiormq.Channel)
        self._task = asyncio.create_task(self._keep(channel), name="feed")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._connection.close()

    async def _keep(self, channel: aiormq.Channel) -> None:
        while True:
            for lane, wanted in self._wanted.items():
                declared = await channel.queue_declare(_NAMES.work(lane), passive=True)
                ready = declared.message_count or 0
                self.lowest[lane] = min(self.lowest[lane], ready)
                await self._publish(channel, lane, wanted - ready)
            await asyncio.sleep(_EVERY_S)

    async def _publish(self, channel: aiormq.Channel, lane: str, jobs: int) -> None:
        for sent in range(max(0, jobs)):
            number = next(self._numbers[lane])
            await channel.basic_publish(
                b'{"number":%d}' % number,
                exchange=_NAMES.ingress,
                routing_key=lane,
                properties=spec.Basic.Properties(
                    delivery_mode=2,
                    content_type="application/json",
                    message_type=f"{lane}.v1",
                    headers={"job-key": f"proof:{number:08d}", "run": "proof"},
                ),
                wait=False,
            )
            if sent % _BURST == 0:
                await asyncio.sleep(0)
