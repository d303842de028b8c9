"""A daemon's own readings of the backlog, on a connection of its own, and what keeps them short."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from acklast.ledger import job_counts
from acklast.ledger.backlog import Backlog, read_backlog
from acklast.ledger.connect import Address, Connection, Link, Rows, unavailable_as_error
from acklast.ledger.standing import Standing, read_standing

_SETTINGS: Final = {
    # Both cost more than a reading takes, and are planned where statistics are behind.
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
_PATIENT: Final = {**_SETTINGS, "statement_timeout": "0", "lock_timeout": "0"}


class Sampling:
    """Every method raises ``LedgerUnavailable``."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._link = _CountsLink(address, _SETTINGS)

    async def close(self) -> None:
        await self._link.close()

    async def read(self, lanes: Collection[str] = ()) -> tuple[Backlog, Standing]:
        """``lanes`` as ``read_backlog`` has it."""
        return await read_backlog(self._link, lanes), await read_standing(self._link)

    async def tidy(self, backlog: Backlog) -> bool:
        """Keep the counts short, and count the jobs from before there were any; whether there was something
        to be done. ``backlog`` is what was read last.
        """
        if not backlog.complete:
            await self._count_older()
        elif job_counts.worth_a_sum(backlog.rows.added, backlog.rows.summed):
            await self._link.sum_up()
        else:
            return False
        return True

    async def _count_older(self) -> None:
        """Takes as long as it takes to read all jobs."""
        connection = await self._address.open(_PATIENT, timeout_s=None)
        try:
            with unavailable_as_error():
                await job_counts.count_older(connection)
        finally:
            connection.terminate()


class _CountsLink(Link):
    async def sum_up(self) -> None:
        await self._use(_summed)


async def _summed(connection: Connection) -> Rows:
    await job_counts.sum_up(connection)
    return []
