"""Removes queues of the namespace that nothing in the configuration names, once they are empty and unread.

A broker deletes a quorum queue with whatever it holds: it knows no "if empty" for one. So a queue is unbound
first, then watched, and bound again if anything shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from aio_pika.abc import AbstractConnection

from acklast.moving import Emptiness, Tell
from acklast.ways import Rows, asking, open_ways, shut_ways, ways_of
from acklast_topology.finding import Finding, Found
from acklast_topology.names import Names


@dataclass(frozen=True, slots=True)
class Clearing:
    """What removing needs. ``bindings`` are as the management API lists them."""

    connection: AbstractConnection
    names: Names
    bindings: Rows
    emptiness: Emptiness
    tell: Tell

    async def all(self, left: Sequence[Finding]) -> list[Finding]:
        """Remove what is empty of these leftovers, a lane only as a whole; what became of each."""
        units: dict[str, list[Finding]] = {}
        for finding in left:
            units.setdefault(self._unit(finding.name, left), []).append(finding)
        done = await asyncio.gather(*(self._clear(unit) for unit in units.values()))
        return [finding for unit in done for finding in unit]

    def _unit(self, queue: str, left: Sequence[Finding]) -> str:
        """A lane that is gone goes as a whole: what waits in one of its queues goes to another of them."""
        place = self.names.place(queue)
        gone = {finding.name for finding in left}
        return place.lane if place and self.names.work(place.lane) in gone else queue

    async def _clear(self, unit: list[Finding]) -> list[Finding]:
        if any(finding.messages != 0 for finding in unit):
            return unit
        queues = [finding.name for finding in unit]
        ways = {queue: ways_of(self.names, queue, self.bindings) for queue in queues}
        for queue in queues:
            await shut_ways(self.connection, queue, ways[queue])
        self.tell("unbound", queues[0], len(queues))
        empty = await asyncio.gather(*(self.emptiness.seen(queue, unread=True) for queue in queues))
        if not all(empty):
            for queue in queues:
                await open_ways(self.connection, queue, ways[queue])
            detail = "is in use: something came in or was read while it was to be removed. It stays"
            return [Finding("queue", queue, Found.EXTRA, detail) for queue in queues]
        for queue in queues:
            async with asking(self.connection) as channel:
                await channel.queue_delete(queue)
            self.tell("deleted", queue, 0)
        return [Finding("queue", queue, Found.REMOVED, "was empty") for queue in queues]
