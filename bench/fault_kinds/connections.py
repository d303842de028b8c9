"""What a broker, an operator or a network does to consumers, channels and connections."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from bench.fault_kinds.base import BROKER, Fault, kind


class Evaluated(Fault):
    """Something that only the broker's own runtime can be told to do."""

    expression: ClassVar[str]

    async def raise_(self) -> None:
        expression = self.expression.replace("VHOST", self.scene.vhost)
        await asyncio.to_thread(self.scene.node.ctl, "eval", expression)


@kind
class ServerCancel(Evaluated):
    """The broker cancels every consumer, and leaves the channels open."""

    name = "server-cancel"
    expression = (
        "[rabbit_channel:send_command(proplists:get_value(channel_pid, C), {'basic.cancel',"
        " proplists:get_value(consumer_tag, C), true})"
        ' || C <- rabbit_amqqueue:consumers_all(<<"VHOST">>)].'
    )


@kind
class ChannelException(Evaluated):
    """The broker closes every channel with an error: an ack of a delivery that it knows nothing of."""

    name = "channel-exception"
    expression = (
        "[rabbit_channel:do(P, {'basic.ack', 999999999, false}) || P <- rabbit_channel:list(),"
        ' rabbit_channel:info(P, [vhost]) =:= [{vhost, <<"VHOST">>}]].'
    )


@kind
class ConnectionsClosed(Fault):
    """An operator has the broker close every connection."""

    name = "connections-closed"

    async def raise_(self) -> None:
        arguments = ("close_all_connections", "--vhost", self.scene.vhost, "drill")
        await asyncio.to_thread(self.scene.node.ctl, *arguments)


@kind
class ConnectionReset(Fault):
    """Something on the way resets the daemons' connections."""

    name = "connection-reset"
    ways = (BROKER,)

    async def raise_(self) -> None:
        self.scene.ways[BROKER].cut()


@kind
class HalfOpen(Fault):
    """Nothing gets through any more, in neither direction, and nobody is told."""

    name = "half-open"
    ways = (BROKER,)
    lasts_s = 30.0

    async def raise_(self) -> None:
        self.scene.ways[BROKER].swallow(True)

    async def end(self) -> None:
        self.scene.ways[BROKER].swallow(False)
