"""Where daemons of one test run: a directory with their configuration, a virtual host, a database."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

import aio_pika
import pytest
from aio_pika.abc import AbstractConnection

from acklast.cli.root import run
from acklast.config.servers import Receiver
from acklast.ledger.api import JobView, ManifestRow, RunView, State
from acklast.ledger.postgres import PostgresLedger
from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import Plan, plan_for
from acklast_topology.publish import Job, Publisher, Status
from harness.daemon import Daemon, Fault
from harness.effects import EffectLog
from harness.scripted import DIRECTORY, LANE, TYPE, log_in
from harness.waiting import eventually

NAMES: Final = Names()
RUN: Final = "run-1"
BUCKETS_S: Final = (1, 5, 30)
"""Fewer wait queues than there are unless configured: a broker takes longer to make a queue than for most of
what a test does there."""
RECEIVERS: Final = tuple(receiver.value for receiver in Receiver)
one_receiver_else_soak: Final = pytest.mark.parametrize(
    "receiver",
    [Receiver.BULK.value, pytest.param(Receiver.LIBRARY.value, marks=pytest.mark.soak)],
    indirect=True,
)
"""For a long test whose subject lies behind the receiver: the other one's turn comes in the long tests."""
_QUIET_POLLS: Final = 5


def scripted(key: str, *steps: str | Mapping[str, Any], **more: Any) -> Job:
    """A job whose handler does these steps, one a call; a text stands for ``{"do": text}``."""
    payload = {"steps": [{"do": step} if isinstance(step, str) else step for step in steps]}
    return Job.json(LANE, key, payload, **{"type": TYPE, "run": RUN} | more)


class Site:
    """Made by ``site``. ``broker_url`` is a connection of the test's own to the daemons' virtual host."""

    def __init__(
        self,
        directory: Path,
        config: Path,
        connection: AbstractConnection,
        ledger: PostgresLedger,
        url: str,
        plan: Plan,
    ) -> None:
        self.directory = directory
        self.connection = connection
        self.ledger = ledger
        self.broker_url = url
        self.config = config
        self._plan = plan

    @property
    def log(self) -> EffectLog:
        """What the handlers did."""
        return log_in(self.directory)

    def daemon(
        self,
        instance: str = "one",
        *,
        fault: Fault | None = None,
        env: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> Daemon:
        """A daemon that is not started yet. ``env`` is for its environment alone; ``fresh``: ``Daemon``."""
        env = {DIRECTORY: str(self.directory), **(env or {})}
        return Daemon(self.config, instance, env=env, fault=fault, fresh=fresh)

    async def command(self, *arguments: str, code: int = 0) -> Any:
        """Run one command with ``--json`` beside the daemons, in this process; its document."""
        ended, out = await asyncio.to_thread(self._run, *arguments, "--json", "--config", str(self.config))
        assert ended == code, (arguments, ended, out)
        return json.loads(out)

    async def answer(self, *arguments: str) -> tuple[int, Any]:
        """The same, whatever its exit code is; the document is None where there is none."""
        arguments = (*arguments, "--json", "--config", str(self.config))
        ended, out = await asyncio.to_thread(self._run, *arguments)
        return ended, json.loads(out) if out else None

    async def exit_of(self, *arguments: str) -> int:
        """Run one command beside the daemons; its exit code."""
        return (await asyncio.to_thread(self._run, *arguments, "--json", "--config", str(self.config)))[0]

    @staticmethod
    def _run(*arguments: str) -> tuple[int, str]:
        # It has an event loop of its own, so it needs a thread of its own. Nobody else prints meanwhile.
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as out:
            for name in [name for name in os.environ if name.startswith("ACKLAST")]:
                patch.delenv(name)
            return run(arguments), out.getvalue()

    def open_gate(self, gate: str) -> None:
        """Let the handlers that wait for this gate go on."""
        (self.directory / gate).touch()

    # --- publishing -----------------------------------------------------------------------------

    async def promise(self, jobs: Sequence[Job]) -> None:
        """Write the run's manifest, as ``acklast enqueue`` does before it publishes."""
        rows = [
            ManifestRow(job.lane, job.key, job.fingerprint, job.type, job.deadline, not_before=job.not_before)
            for job in jobs
        ]
        await self.ledger.manifest(RUN, rows)

    async def publish(self, *jobs: Job) -> None:
        """Publish jobs; every one is confirmed."""
        async with Publisher.connect(self.broker_url) as publisher:
            async for result in publisher.publish_many(jobs):
                assert result.status is Status.CONFIRMED, result

    # --- looking --------------------------------------------------------------------------------

    async def ready(self) -> dict[str, int]:
        """Messages ready in each queue that holds any."""
        async with self.connection.channel() as channel:
            declared = [await channel.declare_queue(queue.name, passive=True) for queue in self._plan.queues]
        counts = {queue.name: queue.declaration_result.message_count or 0 for queue in declared}
        return {name: count for name, count in counts.items() if count}

    async def is_drained(self) -> bool:
        """Whether no queue holds a message that is ready."""
        return not await self.ready()

    async def job(self, key: str) -> JobView:
        """The ledger's account of one job."""
        [view] = await self.ledger.jobs(key, LANE)
        return view

    async def run(self) -> RunView:
        """The ledger's account of the run."""
        view = await self.ledger.run(RUN)
        assert view is not None
        return view

    async def reaches(self, key: str, state: State, timeout_s: float = 30) -> JobView:
        """Wait until a job is in a state."""

        async def there() -> JobView | None:
            views = await self.ledger.jobs(key, LANE)
            return next((view for view in views if view.state is state), None)

        return await eventually(there, timeout_s, f"job {key} is {state}")

    async def quiet(self, timeout_s: float = 30) -> None:
        """Wait until no job of the run is open and no queue holds a message."""

        async def over() -> bool:
            return (await self.run()).open == 0

        await eventually(over, timeout_s, "the run is over")
        await self.quiet_queues(timeout_s)

    async def quiet_queues(self, timeout_s: float = 30) -> None:
        """Wait until no queue holds a message.

        The last copy of a job may be on its way between two queues, where no count sees it: so the queues
        must stay empty for a few looks.
        """
        looks = 0

        async def still() -> bool:
            nonlocal looks
            looks = looks + 1 if await self.is_drained() else 0
            return looks >= _QUIET_POLLS

        await eventually(still, timeout_s, "the queues are empty")


@asynccontextmanager
async def site(
    directory: Path,
    broker_url: str,
    dsn: str,
    *,
    lease_s: float = 60,
    heartbeat_s: int = 15,
    drain_s: float = 30,
    receiver: str = Receiver.BULK,
    longest_unacked_s: float = 900,
    http: str = "",
    more: str = "",
    app: str = "harness.scripted:app",
    management: str | None = None,
    **lane: Any,
) -> AsyncIterator[Site]:
    """A site with its topology in place. ``lane`` has the lane's settings; with a ``quota`` it has a budget.

    ``http`` is the TOML of its request, without which it has the handlers of ``app``, and ``more`` that of
    other tables.

    The lease is long unless a test asks: what recovers at once then does so without waiting for it.
    """
    config = directory / "acklast.toml"
    broker = {"heartbeat_s": heartbeat_s, "receiver": receiver, "longest_unacked_s": longest_unacked_s}
    broker |= {"management_url": management} if management else {}
    config.write_text(_toml(directory, broker_url, dsn, lease_s, drain_s, broker, lane, http, more, app))
    plan = plan_for(NAMES, [LANE], BUCKETS_S, fair=[LANE] if "fair_by" in lane else ())
    ledger = await PostgresLedger.connect(dsn, pool_size=1)
    try:
        async with await aio_pika.connect(broker_url) as connection:
            findings = await apply(connection, plan)
            assert all(finding.fit for finding in findings), findings
            yield Site(directory, config, connection, ledger, broker_url, plan)
    finally:
        await ledger.close()


def _toml(
    directory: Path,
    broker_url: str,
    dsn: str,
    lease_s: float,
    drain_s: float,
    broker: Mapping[str, Any],
    lane: Mapping[str, Any],
    http: str,
    more: str,
    app: str,
) -> str:
    # The shortest back-off: a retry then waits in the shortest bucket, one second.
    settings = {"backoff_base_s": 0.05, "backoff_cap_s": 0.05, "concurrency": 5, **lane}
    quota = settings.pop("quota", None)
    settings |= {"budget": "api"} if quota else {}
    return "\n".join(
        (
            "" if http else f'app = "{app}"',
            f'state_dir = "{directory / "state"}"',
            f"wait_buckets_s = {list(BUCKETS_S)}",
            "[broker]",
            f'url = "{broker_url}"',
            *_lines(broker),
            "[ledger]",
            f'dsn = "{dsn}"',
            f"lease_s = {lease_s}",
            "[drain]",
            f"deadline_s = {drain_s}",
            f"[lanes.{LANE}]",
            *_lines(settings),
            *(("[budgets.api]", f'quota = "{quota}"') if quota else ()),
            f"[lanes.{LANE}.http]\n{http}" if http else "",
            more,
        )
    )


def _lines(settings: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_literal(value)}" for name, value in settings.items()]


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
