"""The load of a drill: so many jobs a second, each with a key of its own, published until confirmed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from acklast_topology.publish import Job, Publisher, Status

_AGAIN_S: Final = 0.2
_TIMEOUT_S: Final = 5.0
_IN_FLIGHT: Final = 512


class Load:
    """Publishes ``per_s`` jobs a second while ``publishing`` is set. ``confirmed`` has the keys and when."""

    def __init__(
        self, urls: Sequence[str], job: Callable[[int], Job], per_s: int, publishing: asyncio.Event
    ) -> None:
        """``job`` makes the job of a number."""
        self._urls = urls
        self._job = job
        self._per_s = per_s
        self._publishing = publishing
        self.confirmed: dict[str, float] = {}
        self.begun = 0
        self.repeats = 0
        """Publishes that were not confirmed, and were repeated."""

    async def publish(self, until: asyncio.Event) -> None:
        """Publish until ``until`` is set, and wait until the broker has confirmed every job."""
        self._publishing.set()
        async with (
            Publisher.connect(self._urls, in_flight=_IN_FLIGHT, timeout_s=_TIMEOUT_S) as publisher,
            asyncio.TaskGroup() as group,
        ):
            next_at = time.monotonic()
            while not until.is_set():
                await self._publishing.wait()
                # What was held up is not made up for.
                next_at = max(next_at + 1 / self._per_s, time.monotonic() - 0.1)
                group.create_task(self._insist(publisher, self.begun))
                self.begun += 1
                await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    async def burst(self, jobs: int) -> None:
        """Publish so many at once, beside the others; they are confirmed when this returns."""
        async with Publisher.connect(self._urls, in_flight=_IN_FLIGHT) as publisher:
            numbers = range(self.begun, self.begun + jobs)
            self.begun += jobs
            await asyncio.gather(*(self._insist(publisher, number) for number in numbers))

    async def _insist(self, publisher: Publisher, number: int) -> None:
        job = self._job(number)
        while (await publisher.publish(job)).status is not Status.CONFIRMED:
            self.repeats += 1
            await asyncio.sleep(_AGAIN_S)
        self.confirmed[job.key] = time.time()
