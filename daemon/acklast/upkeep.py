"""The broker's objects while the daemon runs: declared or verified, put right where they were deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from acklast.apart import apart
from acklast.broker import Link
from acklast.config.models import Config, Declare
from acklast.errors import TopologyError
from acklast.management import looked_into
from acklast.telemetry.events import Emitter
from acklast.unquoted import unquoted
from acklast_topology.calls import only_real_cancellation
from acklast_topology.declare import apply
from acklast_topology.finding import Finding, Found
from acklast_topology.plan import Plan
from acklast_topology.verify import left_behind, verify


class Upkeep:
    """Looks by the consuming connection: a broker under an alarm answers nobody who publishes."""

    def __init__(self, config: Config, link: Link, emitter: Emitter) -> None:
        self._config = config
        self._link = link
        self._emitter = emitter
        self._plan = config.plan()
        self._repairing = asyncio.Lock()
        self._others: asyncio.Task[None] | None = None
        self._told: tuple[str, ...] = ()

    async def start(self) -> None:
        """Declare or verify everything before anything is consumed.

        Raises:
            TopologyError: something does not fit; each with what is wrong.
            BrokerUnavailable: the broker cannot be used.
        """
        connection = await self._link.connect()
        act = apply if self._config.declare is Declare.APPLY else verify
        found = await act(connection, self._plan) + await self._looked_into(self._plan)
        found += await left_behind(connection, self._config.names, self._config.unfair_lanes)
        for unseen in (finding for finding in found if finding.status is Found.UNSEEN):
            self._emitter.notice("topology.unseen", what=unseen.detail)
        if bad := _unfit(found):
            said = "; ".join(f"{f.kind} {f.name}: {f.status} {f.detail}".strip() for f in bad)
            raise TopologyError(f"the broker's topology does not fit: {said}", bad[0].remedy)

    async def fit(self, queue: str) -> str:
        """Why a queue may not be consumed as it is now, with the remedy; nothing where it may.

        What was deleted is declared again, where this daemon may. A queue may have been made again under its
        name with other arguments: the broker would deliver from it as if all were well, and lose jobs.

        Raises:
            OSError, TimeoutError, BrokerUnavailable: the broker does not answer.
        """
        connection, part = await self._link.connect(), _of_queue(self._plan, queue)
        if self._config.declare is Declare.APPLY:
            found = await apply(connection, part)
            if any(finding.status is Found.CREATED for finding in found):
                self._say_repaired(found)
                # It was hardly deleted alone; but it is there, and need not wait for the others.
                self._others = apart(self.repair(), name="repair")
        else:
            found = await verify(connection, part) + await self._looked_into(part)
        bad = _unfit(found)
        # Where the queue does not fit it is not bound either, and the remedy is the queue's.
        told = [finding for finding in bad if finding.kind == "queue"] or bad
        # AMQP and the management API have each found it.
        told = list({(finding.kind, finding.name, finding.remedy): finding for finding in told}.values())
        return "; ".join(f"{f.kind} {f.name}: {f.detail}. {f.remedy}" for f in told)

    async def repair(self) -> None:
        """Declare again what was deleted under the daemon; once for all who ask at the same time."""
        if self._config.declare is not Declare.APPLY or self._repairing.locked():
            return
        async with self._repairing:
            try:
                with only_real_cancellation():
                    found = await apply(await self._link.connect(), self._plan)
            except Exception as error:  # away, or on its way out: whoever asked tries again
                self._emitter.notice("topology.repair_failed", "warning", error=unquoted(error))
                return
        self._say_repaired(found)

    def _say_repaired(self, found: Sequence[Finding]) -> None:
        made = [finding.name for finding in found if finding.status is Found.CREATED]
        unfit = [f"{finding.name}: {finding.detail}" for finding in _unfit(found)]
        if made or (unfit and tuple(unfit) != self._told):
            self._emitter.notice("topology.repaired", "warning", created=made, unfit=unfit)
        self._told = tuple(unfit)

    async def _looked_into(self, plan: Plan) -> list[Finding]:
        broker = self._config.broker
        return await looked_into(plan, broker.addresses(), broker.management_url, broker.longest_unacked_s)


def _unfit(found: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in found if not finding.fit]


def _of_queue(plan: Plan, queue: str) -> Plan:
    """The part of a plan that is about one queue."""
    return Plan(
        (),
        tuple(each for each in plan.queues if each.name == queue),
        tuple(each for each in plan.bindings if each.queue == queue),
    )
