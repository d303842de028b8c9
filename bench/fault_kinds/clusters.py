"""What becomes of one node of three: the leader of the lane's queue, or another one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench.contenders.drill_lane import LANE
from bench.fault_kinds.base import NAMES, Fault, kind
from dev.broker_cluster import BrokerCluster
from dev.rabbitmq import Node
from dev.stack import BrokerServer, Stack
from dev.workspace import Workspace

_LEADER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ClusterStack(Stack):
    """The servers, where the broker is three nodes. ``broker`` is the first of them."""

    cluster: BrokerCluster


class ClusterFault(Fault):
    """A cluster of its own, and daemons and publishers that know all of its nodes."""

    within_s = _LEADER_S

    @classmethod
    @contextmanager
    def servers(cls, shared: Stack) -> Iterator[Stack]:
        with Workspace() as workspace:
            cluster = BrokerCluster(workspace)
            cluster.start()
            first = cluster.nodes[0]
            yield ClusterStack(BrokerServer(first.url(), first.management, first), shared.ledger, cluster)

    @property
    def nodes(self) -> BrokerCluster:
        assert isinstance(self.scene.stack, ClusterStack)
        return self.scene.stack.cluster

    def first(self) -> Node:
        """The node that the daemons connect to first: the leader, where all was declared."""
        return self.nodes.nodes[0]

    def broker_lines(self) -> list[str]:
        return [f"urls = {self.nodes.urls(self.scene.vhost, first=self.first())}"]

    def publisher_urls(self) -> list[str]:
        return self.nodes.urls(self.scene.vhost, first=self.first())

    async def leader(self) -> Node:
        """Who leads the lane's queue."""
        return await asyncio.to_thread(self.nodes.leader_of, self.scene.vhost, NAMES.work(LANE))


class _NodeLost(ClusterFault):
    """A node dies by SIGKILL and stays away until the load has ended."""

    lost: Node

    async def victim(self) -> Node:
        return await self.leader()

    async def begin(self) -> None:
        self.lost = await self.victim()

    async def raise_(self) -> None:
        await asyncio.to_thread(self.lost.kill)

    async def after(self) -> None:
        await asyncio.to_thread(self.lost.start)


@kind
class LeaderLost(_NodeLost):
    """The node dies that leads the queue and that all daemons are connected to."""

    name = "cluster-leader-lost"


@kind
class LeaderLostElsewhere(_NodeLost):
    """The node dies that leads the queue; the daemons are connected to another."""

    name = "cluster-leader-elsewhere"

    def first(self) -> Node:
        return self.nodes.nodes[1]


@kind
class FollowerLost(_NodeLost):
    """The node dies that all daemons are connected to; another one leads the queue."""

    name = "cluster-follower-lost"

    def first(self) -> Node:
        return self.nodes.nodes[1]

    async def victim(self) -> Node:
        return self.first()


@kind
class LeaderBack(_NodeLost):
    """The leader's node dies, and comes back: it ends when the node is ready."""

    name = "cluster-leader-back"
    lasts_s = 10.0

    async def end(self) -> None:
        await asyncio.to_thread(self.lost.start)

    async def after(self) -> None:
        return


@kind
class Partition(ClusterFault):
    """The leader's node, with all daemons connected to it, is cut off from the two others."""

    name = "cluster-partition"
    within_s = 30.0
    parted: Node

    async def begin(self) -> None:
        self.parted = await self.leader()

    async def raise_(self) -> None:
        await asyncio.to_thread(self.nodes.part, self.parted)

    async def after(self) -> None:
        await asyncio.to_thread(self.nodes.join, self.parted)
        await asyncio.to_thread(self.parted.await_ready)


@kind
class LeaderPaused(ClusterFault):
    """The leader's node stands still, with every daemon's connection to it: only a heartbeat can tell."""

    name = "cluster-leader-paused"
    within_s = 30.0
    paused: Node

    async def begin(self) -> None:
        self.paused = await self.leader()

    async def raise_(self) -> None:
        self.paused.pause()

    async def after(self) -> None:
        self.paused.resume()
        await asyncio.to_thread(self.paused.await_ready)
