"""What a daemon does for a redrive, look by look: a real ledger, and a broker that does as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from aio_pika.abc import AbstractConnection
from aiormq import spec

import acklast.redriver
from acklast import letters as made_letters
from acklast.config import Config
from acklast.errors import BrokerUnavailable, LedgerUnavailable
from acklast.ledger import redrives
from acklast.ledger.api import Claim, Fresh, Session
from acklast.ledger.connect import Address
from acklast.ledger.lease import Lease
from acklast.ledger.operate import Operations
from acklast.ledger.redriving import Redriving
from acklast.outcome import Bury, Complete, Verdict
from acklast.redriver import BUSY_S, NotSent, Redriver
from acklast.telemetry.events import Emitter, Event, Notice
from acklast_topology import contract
from acklast_topology.message import Envelope, RawMessage
from acklast_topology.publish import Sent, Status
from harness.redrives import begin, found, letters
from ledger.worlds import LANE, PostgresWorld, a_record, elsewhere, start

REPORT = """
insert into acklast.lane_reports (session, lane, heard, concurrency, in_flight, held, started, window_s,
                                  state)
values ($1, $2, 0, 5, 0, $3, $4, 5, $5)
on conflict (session, lane) do update set held = excluded.held, started = excluded.started,
                                          state = excluded.state
"""


@dataclass
class FakeLease:
    session: Session
    live: bool = True

    async def current(self) -> Session:
        return self.session


@dataclass
class Broker:
    """Takes messages in, or not. ``ready`` is what it says of the lane's queue."""

    status: Status = Status.CONFIRMED
    ready: int = 0
    away: bool = False
    sent: list[tuple[str, bytes, spec.Basic.Properties]] = field(default_factory=list)

    async def send(
        self, exchange: str, routing_key: str, body: bytes, properties: spec.Basic.Properties
    ) -> Sent:
        assert exchange == "acklast.v1.route"
        self.sent.append((routing_key, body, properties))
        return Sent(self.status, "as it was told")

    async def connect(self) -> AbstractConnection:
        if self.away:
            raise BrokerUnavailable("no broker", "start it")
        return cast("AbstractConnection", None)

    async def counts(self, connection: object, queues: Sequence[str]) -> tuple[int | None, int]:
        assert queues == [f"acklast.v1.{LANE}.work"]
        return self.ready, 1


@dataclass
class Scene:
    world: PostgresWorld
    lease: FakeLease
    broker: Broker
    redriver: Redriver
    events: list[Event]
    clock: list[float]

    def said(self, name: str) -> list[Notice]:
        return [event for event in self.events if isinstance(event, Notice) and event.name == name]

    async def attempt(self, verdict: Verdict, *keys: str) -> None:
        """One attempt of each of these jobs that comes to this."""
        for key in keys:
            raw = RawMessage(b"{}", headers={"job-key": key, "x-death": [1], "n": b"\xfe"}, priority=3)
            envelope = contract.parse(raw)
            assert isinstance(envelope, Envelope)
            claim = Claim(LANE, key, envelope.fingerprint, None, None, None, None, None)
            fresh = await self.world.ledger.claim(self.lease.session, claim)
            assert isinstance(fresh, Fresh), fresh
            letter = None
            if isinstance(verdict, Bury):
                letter = made_letters.of_job(LANE, envelope, verdict.reason, "")
            await self.world.ledger.record(self.lease.session, a_record(fresh, verdict, key, letter=letter))

    async def report(self, held: int = 0, started: int = 0, state: str = "open") -> None:
        await self.world.sql(REPORT, self.lease.session.id, LANE, held, started, state)

    async def looks(self, number: int, seconds: float = 1.0) -> None:
        for _ in range(number):
            self.clock[0] += seconds
            await self.redriver.once()

    async def states(self, redrive: int) -> str:
        """The first letter of each state, in order."""
        return "".join(row["state"][0] for row in await letters(self.world.sql, redrive))


@pytest.fixture
async def scene(
    postgres: PostgresWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    config = Config.model_validate(
        {
            "app": "a:b",
            "state_dir": str(tmp_path),
            "broker": {"urls": ["amqp://localhost"]},
            "ledger": {"dsn": postgres.dsn},
            "lanes": {LANE: {}},
        }
    )
    lease, broker = FakeLease(await start(postgres.ledger)), Broker()
    monkeypatch.setattr(acklast.redriver, "counts", broker.counts)
    events: list[Event] = []
    clock = [0.0]
    redriver = Redriver(
        config,
        Redriving(Address.of(postgres.dsn)),
        cast("Lease", lease),
        broker.connect,
        broker.send,
        Emitter(events.append),
        worker="w",
        version="1.2.3",
        most=3,
        clock=lambda: clock[0],
    )
    made = Scene(postgres, lease, broker, redriver, events, clock)
    await made.report()
    yield made
    await redriver.close()


KEYS = [f"k{n:02}" for n in range(40)]


async def test_a_letters_message_is_sent_as_it_came(scene: Scene) -> None:
    await scene.attempt(Bury("no"), "a")
    number = await begin(scene.world.sql, LANE)
    await scene.looks(2)
    [(routing_key, body, properties)] = scene.broker.sent
    assert (routing_key, body, properties.priority) == (f"{LANE}.work", b"{}", 3)
    assert properties.headers == {"job-key": "a", "n": b"\xfe"}
    assert properties.message_id not in (None, "")
    assert (await letters(scene.world.sql, number))[0]["sent_at"] is not None
    await scene.looks(1)
    assert len(scene.broker.sent) == 1


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.REFUSED, Status.RETURNED])
async def test_what_the_broker_has_not_taken_is_sent_again_before_anything_else_is_released(
    scene: Scene, status: Status
) -> None:
    await scene.attempt(Bury("no"), *KEYS[:3])
    number = await begin(scene.world.sql, LANE, rate_per_s=1)
    scene.broker.status = status
    for _ in range(3):
        with pytest.raises(NotSent, match="not published"):
            await scene.looks(2)
    assert await scene.states(number) == "rpp"
    scene.broker.status = Status.CONFIRMED
    await scene.looks(1)
    assert await scene.states(number) == "rrp"
    assert {
        properties.headers["job-key"] for _, _, properties in scene.broker.sent if properties.headers
    } == {
        "k00",
        "k01",
    }


async def test_a_broker_that_is_away_is_told_once_and_what_is_out_is_settled_all_the_same(
    scene: Scene,
) -> None:
    await scene.attempt(Bury("no"), *KEYS[:3])
    number = await begin(scene.world.sql, LANE, rate_per_s=1)
    await scene.looks(2)
    await scene.attempt(Complete(), "k00")
    scene.broker.away = True
    task = asyncio.create_task(scene.redriver.run())
    async with asyncio.timeout(30):
        while (await found(scene.world.sql, number))["done"] == 0 or not scene.said("redrive.failed"):
            await asyncio.wait([task], timeout=0.1)
        [event] = scene.said("redrive.failed")
        assert event.level == "warning"
        scene.broker.away = False
        while await scene.states(number) == "spp":
            scene.clock[0] += 1
            await asyncio.wait([task], timeout=0.1)
    assert len(scene.said("redrive.failed")) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_ledger_that_is_away_is_told_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    async def away(*_: Any) -> Any:
        nonlocal tries
        tries += 1
        raise LedgerUnavailable("no ledger", "start it")

    monkeypatch.setattr(scene.redriver._ledger, "own", away)
    monkeypatch.setattr(acklast.redriver, "_AGAIN_S", (0.001,))
    task = asyncio.create_task(scene.redriver.run())
    async with asyncio.timeout(30):
        while tries < 5:
            await asyncio.wait([task], timeout=BUSY_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [event.fields["error"] for event in scene.said("redrive.failed")] == ["no ledger"]


async def test_a_daemon_without_its_lease_does_nothing(scene: Scene) -> None:
    await scene.attempt(Bury("no"), "a")
    number = await begin(scene.world.sql, LANE)
    scene.lease.live = False
    await scene.looks(3)
    assert await scene.states(number) == "p"
    # The lease is lost in the midst of it: another session has it, and this one does not even publish.
    scene.lease.live = True
    await scene.looks(1)
    await scene.world.run_out(scene.lease.session)
    await scene.looks(3)
    assert await scene.states(number) == "p"


async def test_no_more_is_released_than_the_rate_allows(scene: Scene) -> None:
    await scene.attempt(Bury("no"), *KEYS[:12])
    number = await begin(scene.world.sql, LANE, rate_per_s=2)
    await scene.looks(1, 0.0)
    for look in range(1, 5):
        await scene.looks(1, 0.5)
        assert (await scene.states(number)).count("r") == min(look, 4)
    # Two seconds' worth is in the lane's queue, and nobody takes it.
    await scene.looks(5, 10.0)
    assert (await scene.states(number)).count("r") == 4


@pytest.mark.parametrize(("held", "ready"), [(5, 0), (0, 5)])
async def test_it_yields_to_other_jobs_that_wait(scene: Scene, held: int, ready: int) -> None:
    await scene.attempt(Bury("no"), *KEYS)
    number = await begin(scene.world.sql, LANE, rate_per_s=20)
    await scene.report(held, started=250)
    scene.broker.ready = ready
    # Once may be in passing; from the second look on it is 4 % of 50 a second.
    await scene.looks(2, 0.0)
    await scene.looks(4, 0.5)
    assert (await scene.states(number)).count("r") == 4
    # What waits now are its own jobs, and they go on first.
    scene.broker.ready = 0
    await scene.report(held=4, started=250)
    await scene.looks(1, 0.5)
    await scene.looks(1, 0.5)
    assert (await scene.states(number)).count("r") > 4


@pytest.mark.parametrize("state", ["paused", "breaker", "quiet", "lease_lost", "not_consuming"])
async def test_where_nothing_starts_nothing_is_released(scene: Scene, state: str) -> None:
    await scene.attempt(Bury("no"), "a")
    number = await begin(scene.world.sql, LANE)
    await scene.report(state=state)
    await scene.looks(3)
    assert await scene.states(number) == "p"
    await scene.report(state="no_permit")
    await scene.looks(1)
    assert await scene.states(number) == "r"


async def test_what_is_refused_costs_no_time(scene: Scene) -> None:
    await scene.attempt(Bury("no"), *KEYS)
    number = await begin(scene.world.sql, LANE, rate_per_s=1)
    await scene.world.sql("update acklast.jobs set fence = fence + 1 where key < 'k30'")
    await scene.looks(2)
    assert (await scene.states(number)).count("r") == 31
    row = await found(scene.world.sql, number)
    assert (row["refused"], row["released"]) == (30, 1)


@pytest.mark.parametrize(("decided", "level"), [(True, "warning"), (False, "info")])
async def test_what_is_refused_is_told_with_its_reasons(scene: Scene, decided: bool, level: str) -> None:
    await scene.attempt(Bury("no"), *KEYS[:3])
    number = await begin(scene.world.sql, LANE, decided=decided)
    await scene.world.sql("update acklast.dead_letters set payload = null where key in ('k01', 'k02')")
    await scene.looks(3)
    assert await scene.states(number) == "rrr"
    [told] = scene.said("redrive.refused")
    assert told.level == level
    expected = {"redrive": number, "lane": LANE, "count": 2, "why": {"gone": 2}, "key": "k01"}
    assert expected.items() <= told.fields.items()
    operations = await Operations.connect(Address.of(scene.world.dsn))
    assert await redrives.refusals(operations, await redrives.one(operations, number)) == {"gone": 2}
    operations.close()


async def test_a_letter_that_somebody_holds_does_not_hold_up_the_others(scene: Scene) -> None:
    await scene.attempt(Bury("no"), *KEYS[:3])
    number = await begin(scene.world.sql, LANE, rate_per_s=1)
    async with elsewhere(scene.world, "select from acklast.jobs where key = 'k00' for update"):
        await scene.looks(3)
        assert await scene.states(number) == "prr"
    await scene.attempt(Complete(), "k01")
    await scene.looks(2)
    assert await scene.states(number) == "rsr"


async def test_what_stands_still_is_looked_at_less_often(scene: Scene) -> None:
    await scene.attempt(Bury("no"), "k00")
    await begin(scene.world.sql, LANE)
    await scene.looks(2)
    assert await scene.redriver.once()
    scene.clock[0] += 60
    assert not await scene.redriver.once()
    await scene.attempt(Complete(), "k00")
    assert await scene.redriver.once()
    assert not await scene.redriver.once()


async def test_what_is_released_keeps_it_going(scene: Scene) -> None:
    await scene.attempt(Bury("no"), *KEYS[:2])
    await begin(scene.world.sql, LANE, rate_per_s=1)
    await scene.redriver.once()
    scene.clock[0] += 60
    assert await scene.redriver.once()
    scene.clock[0] += 60
    assert await scene.redriver.once()


async def test_it_asks_where_the_lanes_other_jobs_fail_since_it_began(scene: Scene) -> None:
    await scene.attempt(Bury("no"), *KEYS[:5])
    number = await begin(scene.world.sql, LANE, steps=(1,))
    await scene.looks(2, 6.0)
    await scene.attempt(Bury("no"), *(f"live-{n}" for n in range(60)))
    await scene.looks(2, 6.0)
    row = await found(scene.world.sql, number)
    assert (row["status"], row["released"]) == ("asking", 1)
    assert scene.said("redrive.asks")[0].fields["why"] == "live_fails_more"
    # A person says that it may go on all the same.
    await scene.world.sql(
        """update acklast.redrives set status = 'running', said = said || '{"accepted": {"live": true}}'"""
    )
    await scene.attempt(Complete(), "k00")
    await scene.looks(4, 6.0)
    assert (await found(scene.world.sql, number))["released"] == 5
