"""What becomes of the broker itself, its queues and its users."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote, urlsplit

import aio_pika

from bench.contenders.drill_lane import LANE
from bench.fault_kinds.base import NAMES, Fault, Scene, kind
from bench.fault_kinds.connections import Evaluated

_BACKLOG = 3000
_EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


@kind
class QueueProcessKilled(Evaluated):
    """The process that leads the queue dies, and its supervisor starts another."""

    name = "queue-leader-killed"

    async def raise_(self) -> None:
        process = f"{self.scene.vhost}_{NAMES.work(LANE)}"
        await asyncio.to_thread(self.scene.node.ctl, "eval", f"exit(whereis('{process}'), kill).")


class _Alarm(Fault):
    """The broker is short of something: it takes nothing more in, and goes on giving out."""

    lasts_s = 20.0
    concurrency = 4
    too_much: tuple[str, ...]
    usual: tuple[str, ...]

    async def raise_(self) -> None:
        # So that there is something to do meanwhile, and to be tried again.
        await self.scene.burst(_BACKLOG)
        await asyncio.to_thread(self.scene.node.ctl, *self.too_much)

    async def end(self) -> None:
        await asyncio.to_thread(self.scene.node.ctl, *self.usual)


@kind
class MemoryAlarm(_Alarm):
    """The broker has too little memory left: publishers wait."""

    name = "memory-alarm"
    too_much = ("set_vm_memory_high_watermark", "absolute", "10MB")
    usual = ("set_vm_memory_high_watermark", "absolute", "1GB")


@kind
class DiskAlarm(_Alarm):
    """The broker has too little disk left: publishers wait."""

    name = "disk-alarm"
    too_much = ("set_disk_free_limit", "100000GB")
    usual = ("set_disk_free_limit", "50MB")


@kind
class BrokerRestart(Fault):
    """The broker dies by SIGKILL and is started again: it ends when it is ready."""

    name = "broker-restart"
    lasts_s = 5.0

    async def raise_(self) -> None:
        await asyncio.to_thread(self.scene.node.kill)

    async def end(self) -> None:
        await asyncio.to_thread(self.scene.node.start)


@kind
class BrokerPaused(Fault):
    """The broker stands still for longer than any heartbeat, and goes on as if nothing had been."""

    name = "broker-paused"
    lasts_s = 40.0

    async def raise_(self) -> None:
        self.scene.node.pause()

    async def end(self) -> None:
        self.scene.node.resume()


@kind
class QueueDeleted(Fault):
    """Somebody deletes the lane's queue, once it is empty. The daemons make it again.

    What is published until then is in no queue of the lane: it waits in the queue of what is not routed.
    """

    name = "queue-deleted"

    async def raise_(self) -> None:
        await self._delete()

    async def _delete(self) -> None:
        async with self.scene.quiet():
            await asyncio.to_thread(self.scene.delete_queue, NAMES.work(LANE))

    async def after(self) -> None:
        await self.scene.resend_unrouted()


@kind
class QueueReplaced(QueueDeleted):
    """Somebody deletes the lane's queue and makes a classic one of its name; later it is deleted again."""

    name = "queue-replaced"
    lasts_s = 10.0

    async def raise_(self) -> None:
        async with self.scene.quiet(), await aio_pika.connect(self.scene.url) as connection:
            await asyncio.to_thread(self.scene.delete_queue, NAMES.work(LANE))
            while not await self._replaced(connection):
                await asyncio.to_thread(self.scene.delete_queue, NAMES.work(LANE))

    @staticmethod
    async def _replaced(connection: aio_pika.abc.AbstractConnection) -> bool:
        """Whether the classic queue is there: a daemon may have been quicker."""
        try:
            async with connection.channel() as channel:
                await channel.declare_queue(NAMES.work(LANE), durable=True)
        except aio_pika.exceptions.ChannelPreconditionFailed:
            return False
        return True

    async def end(self) -> None:
        await asyncio.to_thread(self.scene.delete_queue, NAMES.work(LANE))


@kind
class CredentialsRotated(Fault):
    """The broker's password changes, and every connection is closed; the file is written later."""

    name = "credentials-rotated"
    lasts_s = 5.0

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._user = f"drill-{scene.vhost}"
        self._file = scene.directory / "broker-url"

    def broker_lines(self) -> list[str]:
        return [f'url_file = "{self._file}"']

    async def begin(self) -> None:
        await asyncio.to_thread(self._set, "old")
        vhost = quote(self.scene.vhost, safe="")
        self._call("PUT", f"permissions/{vhost}/{self._user}", _EVERYTHING)
        self._write("old")

    async def raise_(self) -> None:
        await asyncio.to_thread(self._set, "new")
        arguments = ("close_all_user_connections", self._user, "rotated")
        await asyncio.to_thread(self.scene.node.ctl, *arguments)

    async def end(self) -> None:
        self._write("new")

    def _set(self, password: str) -> None:
        self._call("PUT", f"users/{self._user}", {"password": password, "tags": ""})

    def _write(self, password: str) -> None:
        parts = urlsplit(self.scene.url)
        netloc = f"{self._user}:{password}@{parts.hostname}:{parts.port}"
        self._file.write_text(parts._replace(netloc=netloc).geturl())

    def _call(self, method: str, path: str, body: Any) -> None:
        self.scene.stack.broker.management.call(method, path, body)
