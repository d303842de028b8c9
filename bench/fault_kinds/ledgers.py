"""What becomes of the ledger's Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar, Final

import asyncpg

from bench.fault_kinds.base import LEDGER, Fault, Scene, kind
from dev.postgres import Cluster, either_dsn, mirrored
from dev.stack import LedgerServer, Stack
from dev.workspace import Workspace

_CUT: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = '{}' AND application_name LIKE 'acklast/%'"
)
_AGAIN_S: Final = 0.5


@kind
class LedgerRestart(Fault):
    """Postgres dies by SIGKILL and is started again: it ends when it takes connections."""

    name = "ledger-restart"
    lasts_s = 10.0

    async def raise_(self) -> None:
        await asyncio.to_thread(self.scene.cluster.kill)

    async def end(self) -> None:
        await asyncio.to_thread(self.scene.cluster.start)


@kind
class LedgerConnectionsCut(Fault):
    """Every connection of the daemons is ended, twice a second."""

    name = "ledger-connections-cut"
    lasts_s = 20.0

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._cutting: asyncio.Task[None] | None = None

    async def raise_(self) -> None:
        self._cutting = asyncio.create_task(self._cut())

    async def end(self) -> None:
        assert self._cutting is not None, "it was raised"
        self._cutting.cancel()
        await asyncio.gather(self._cutting, return_exceptions=True)

    async def _cut(self) -> None:
        statement = _CUT.format(self.scene.database)
        while True:
            await asyncio.to_thread(self.scene.cluster.sql, statement)
            await asyncio.sleep(_AGAIN_S)


@kind
class LedgerPaused(Fault):
    """Postgres stands still for longer than a lease, and goes on as if nothing had been."""

    name = "ledger-paused"
    lasts_s = 20.0

    def ledger_lines(self) -> list[str]:
        return [*super().ledger_lines(), "lease_s = 10"]

    async def raise_(self) -> None:
        self.scene.cluster.pause()

    async def end(self) -> None:
        self.scene.cluster.resume()


@kind
class LedgerHalfOpen(Fault):
    """Nothing gets through to Postgres any more, in neither direction, and nobody is told."""

    name = "ledger-half-open"
    ways = (LEDGER,)
    lasts_s = 30.0

    async def raise_(self) -> None:
        self.scene.ways[LEDGER].swallow(True)

    async def end(self) -> None:
        self.scene.ways[LEDGER].swallow(False)


@kind
class LedgerLocked(Fault):
    """Somebody's transaction holds the table of jobs."""

    name = "ledger-locked"
    lasts_s = 20.0

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._holder: asyncpg.Connection[asyncpg.Record] | None = None

    async def raise_(self) -> None:
        self._holder = await asyncpg.connect(self.scene.dsn)
        await self._holder.execute("BEGIN; LOCK TABLE acklast.jobs IN ACCESS EXCLUSIVE MODE")

    async def end(self) -> None:
        assert self._holder is not None, "it was raised"
        await self._holder.close()


@kind
class LedgerFailover(Fault):
    """The primary is lost for good, and five seconds later its synchronous standby takes its place."""

    name = "ledger-failover"
    lasts_s = 5.0
    pair: ClassVar[tuple[Cluster, Cluster]]

    @classmethod
    @contextmanager
    def servers(cls, shared: Stack) -> Iterator[Stack]:
        with Workspace() as workspace:
            primary, standby = cls.pair = mirrored(workspace)
            primary.create_database("acklast")
            yield replace(shared, ledger=LedgerServer(either_dsn(primary, standby, "acklast"), primary))

    async def raise_(self) -> None:
        await asyncio.to_thread(self.pair[0].kill)

    async def end(self) -> None:
        await asyncio.to_thread(self.pair[1].promote)
