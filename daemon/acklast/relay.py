"""Publishes what applications have promised in the outbox, with confirms, in order per key.

Any number of relays may run, in daemons or alone, and none leads: each takes rows that no other holds. A row
goes only once the broker has confirmed its message; a crash in between publishes it again, and the ledger
makes one job of both.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Final

from acklast import faults
from acklast.chores import Chore
from acklast.config import Config
from acklast.errors import LedgerUnavailable
from acklast.ledger.outbox import BATCH, Dead, Later, Outbox, Promised
from acklast.progress import Part, Round
from acklast.telemetry.events import Emitter, Published
from acklast.telemetry.trace import Posted, posted_of
from acklast.telemetry.trace import Send as Sending
from acklast.unquoted import unquoted
from acklast_topology.publish import Job, Publisher, Status, TopologyMissing

RELAYING: Final = "relaying the outbox"
"""What it says of itself while all is well."""
_FIRST_S: Final = 1.0
_LONGEST_S: Final = 300.0
_LINGER_S: Final = 30.0
_RETRIES: Final = 2
"""Of a publish that nobody knows of. A message that the broker does not take ends the channel for the others,
which would wait as long as it does, and come again with it."""
_STILL_S: Final = 300.0
"""How long a batch may take: each row is published and settled within time limits."""
_AGAIN_S: Final = (0.2, 1.0, 2.0, 5.0)


def wait_s(tries: int) -> float:
    """How long a row waits that was not published for the ``tries``-th time."""
    return float(min(_FIRST_S * 2 ** min(tries, 20), _LONGEST_S))


@dataclass(slots=True)
class Batch:
    """What became of the rows of one batch."""

    published: list[int] = field(default_factory=list)
    posted: list[Posted] = field(default_factory=list)
    later: list[Later] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)

    def put_off(self, row: Promised, error: str) -> None:
        self.later.append(Later(row.id, wait_s(row.tries), error))


class Relay(Chore):
    """Publishes until it is closed."""

    name = "relay"

    def __init__(
        self,
        outbox: Outbox,
        publisher: Callable[[], Publisher],
        emitter: Emitter,
        worker: str,
        *,
        poll_s: float,
        chance: Callable[[], float] = random.random,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``publisher`` makes one that is not open yet. ``poll_s``: how often to look for more. ``tell`` is
        told in one line how it is, whenever that changes."""
        self._tell_how = tell
        self._round = Round()
        self._outbox = outbox
        self._new_publisher = publisher
        self._emitter = emitter
        self._worker = worker
        self._poll_s = poll_s
        self._chance = chance
        self._failing = False
        self._told = ""
        self._more = False
        """Whether the last batch has left any that are due."""

    async def close(self) -> None:
        """Stop, and wait until its connections are gone: what is not confirmed by now stays in the outbox."""
        await super().close()
        await self._outbox.close()

    def part(self, now: float) -> Part:
        return replace(super().part(now), still_s=now - self._round.at, within_s=_STILL_S)

    def text(self) -> str:
        """How it is while all is well."""
        return RELAYING

    async def run(self) -> None:
        """Publish for ever; while broker or ledger is away try again, and say so once."""
        tries = 0
        while True:
            self._round.again()
            try:
                if await self._outbox.is_due():
                    await self._publish_all()
                tries = self._well()
                await self._pause()
                continue
            except (LedgerUnavailable, ConnectionError, TopologyMissing, TimeoutError) as error:
                self._say(error)
            except Exception as defect:
                self._emitter.notice("relay.defect", "error", exc_info=defect)
            await asyncio.sleep(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)] * (0.5 + self._chance()))
            tries += 1

    async def _publish_all(self) -> None:
        """Publish until nothing has come for a while: most daemons never need the connection."""
        async with self._new_publisher() as publisher:
            last = time.monotonic()
            while time.monotonic() - last < _LINGER_S:
                self._round.again()
                if await self.once(publisher):
                    last = time.monotonic()
                    self._well()
                if not self._more:
                    await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(self._poll_s * (0.5 + self._chance()))

    def _well(self) -> int:
        if self._failing:
            self._emitter.notice("relay.resumed")
            self._tell_how(self.text())
            self._failing, self._told = False, ""
        return 0

    def _say(self, error: Exception) -> None:
        said = unquoted(error)
        if not self._failing:
            # Once: a server that goes shows itself by one error after the other.
            self._failing = True
            self._emitter.notice("relay.unavailable", "warning", error=said)
        if self._told != said:
            self._told = said
            self._tell_how(f"{said}; nothing is relayed")

    async def once(self, publisher: Publisher) -> int:
        """Publish what is due, as far as it is one batch; how many rows were taken.

        Raises:
            LedgerUnavailable: the ledger does not answer: what was published may be published again.
        """
        async with self._outbox.take() as taken:
            self._more = taken.more
            if taken.rows:
                batch = await _publish(publisher, taken.rows)
                if faults.ARMED:
                    faults.point("relayed")
                await taken.settle(batch.published, batch.later, batch.dead, self._worker)
                self._tell(batch)
            return len(taken.rows)

    def _tell(self, batch: Batch) -> None:
        if batch.published:
            self._emitter.emit(Published("relay", len(batch.published), tuple(batch.posted)))
        if batch.dead:
            first = batch.dead[0]
            self._emitter.notice(
                "outbox.buried", "error", count=len(batch.dead), row=first.id, error=first.detail
            )
        if batch.later:
            one = batch.later[0]
            self._emitter.notice(
                "outbox.put_off", "warning", count=len(batch.later), row=one.id, error=one.error
            )


def publisher_of(config: Config, brokers: Callable[[], Sequence[str]]) -> Callable[[], Publisher]:
    """What makes publishers to the broker's URLs of the moment."""

    def make() -> Publisher:
        return Publisher.connect(
            brokers(),
            names=config.names,
            in_flight=BATCH,
            timeout_s=config.broker.publish_timeout_s,
            retries=_RETRIES,
        )

    return make


def _posted(job: Job, exchange: str, began: float) -> tuple[Posted, ...]:
    now, size = time.monotonic(), len(job.payload)
    send = Sending(exchange, job.routing_key, "", size, began, now, Status.CONFIRMED.value)
    return posted_of(job.headers, job.lane, job.key, send)


async def _publish(publisher: Publisher, rows: Sequence[Promised]) -> Batch:
    batch, jobs, began = Batch(), list[Job](), time.monotonic()
    by_job: dict[int, Promised] = {}
    for row in rows:
        try:
            job = row.job()
        except (ValueError, TypeError) as error:
            batch.dead.append(Dead(row.id, str(error)))
            continue
        by_job[id(job)] = row
        jobs.append(job)
    async with aclosing(publisher.publish_many(jobs)) as results:  # type: ignore[type-var]
        async for result in results:
            row = by_job[id(result.job)]
            if result.status is Status.CONFIRMED:
                batch.published.append(row.id)
                batch.posted += _posted(result.job, publisher.exchange, began)
            else:
                batch.put_off(row, f"{result.status}: {result.detail}")
    return batch
