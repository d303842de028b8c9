"""What ``acklast top`` reads again and again: the ledger in one round trip, the broker beside it.

Each goes on by itself: one that is away is told, what it said last stays, and it is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from acklast.cli.lane_target import unknown
from acklast.cli.lane_view import lanes_of
from acklast.cli.queues import Queues, work_of
from acklast.cli.servers import broker_of
from acklast.cli.top_view import Read
from acklast.config import Config
from acklast.errors import AcklastError, Exit, LedgerUnavailable
from acklast.ledger.backlog import read_backlog
from acklast.ledger.connect import Address
from acklast.ledger.controls import Target
from acklast.ledger.standing import read_standing
from acklast.ledger.together import Together
from acklast.ledger.workers import read_workers


@dataclass(slots=True)
class Seen:
    """The last that was read, and why it is not newer. ``first``: each has answered once, or has not."""

    read: Read | None = None
    ready: Mapping[str, Queues] = field(default_factory=dict)
    ledger: AcklastError | None = None
    broker: str | None = None
    first: asyncio.Event = field(default_factory=asyncio.Event)


class Watch:
    """Reads the ledger and the broker every ``every_s`` seconds, as long as its tasks run."""

    def __init__(
        self, config: Config, every_s: float, tell: Callable[[], None], lanes: Sequence[str] = ()
    ) -> None:
        """``tell`` is called whenever there is something new. ``lanes`` must be there."""
        self._wanted = lanes
        self._config = config
        self._every_s = every_s
        self._tell = tell
        self.seen = Seen()

    async def once(self) -> None:
        """
        Raises:
            AcklastError: the ledger cannot be read, or there is no such lane.
        """
        operations = await self._connect()
        try:
            await self._read(operations)
        finally:
            operations.close()
        await self._look_once()

    async def ledger(self) -> None:
        """Read the ledger, until it is cancelled.

        Raises:
            AcklastError: there is no such lane, or the ledger must not be used like this: waiting would not
                change that.
        """
        while True:
            try:
                operations = await self._connect()
                try:
                    while True:
                        await self._read(operations)
                        await asyncio.sleep(self._every_s)
                finally:
                    operations.close()
            except AcklastError as error:
                if error.exit is not Exit.UNAVAILABLE:
                    raise
                self._away(error)
            except (OSError, TimeoutError) as error:
                self._away(LedgerUnavailable(f"the ledger does not answer: {error}", "It is asked again"))
            await asyncio.sleep(self._every_s)

    async def broker(self) -> None:
        """Look at the lanes' work queues, until it is cancelled."""
        await self.seen.first.wait()
        while True:
            try:
                async with broker_of(self._config) as connection:
                    while True:
                        self.seen.ready = await work_of(connection, self._config, self._lanes())
                        self.seen.broker = None
                        self._tell()
                        await asyncio.sleep(self._every_s)
            except AcklastError as error:
                self.seen.ready, self.seen.broker = {}, error.what
            self._tell()
            await asyncio.sleep(self._every_s)

    async def _connect(self) -> Together:
        server = self._config.ledger
        address = Address.of(server.address(), allow_unsafe_server=server.allow_unsafe_server)
        return await Together.connect(address)

    async def _read(self, operations: Together) -> None:
        await operations.refresh()
        standing = await read_standing(operations)
        known = lanes_of(self._config, standing)
        if other := next((lane for lane in self._wanted if lane not in known), None):
            raise unknown(self._config, Target.LANE, other, standing.lanes)
        workers = tuple(await read_workers(operations, ended=False))
        self.seen.read = Read(standing, workers, await read_backlog(operations))
        self.seen.ledger = None
        self.seen.first.set()
        self._tell()

    async def _look_once(self) -> None:
        try:
            async with broker_of(self._config) as connection:
                self.seen.ready = await work_of(connection, self._config, self._lanes())
        except AcklastError as error:
            self.seen.broker = error.what

    def _away(self, error: AcklastError) -> None:
        self.seen.ledger = error
        self.seen.first.set()
        self._tell()

    def _lanes(self) -> list[str]:
        read = self.seen.read
        return [*self._config.lanes] if read is None else lanes_of(self._config, read.standing)
