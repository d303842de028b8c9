"""What a daemon makes of messages: broken ones are kept, repeats have one effect, and the lane goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import asyncpg

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.contract import JSON, Reason
from acklast_topology.wire import Properties
from harness import eventually
from harness.daemon import Fault
from harness.scripted import LANE, TYPE
from harness.site import NAMES, Site, one_receiver_else_soak, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

GOOD = b'{"steps": [{"do": "done"}]}'
YESTERDAY = (datetime.now(UTC) - timedelta(days=1)).isoformat()


class Foreign(Properties):
    """Properties that go out as they are: the library gives a message without an id one of its own."""

    def marshal(self) -> bytes:
        stamped, self.message_id = self.message_id, None
        encoded = super().marshal()
        self.message_id = stamped
        return encoded


def message(key: str | None, **properties: Any) -> Properties:
    """A good message's properties with some changed."""
    headers = {"job-key": key} if key is not None else {}
    given: dict[str, Any] = {"content_type": JSON, "message_type": TYPE, "delivery_mode": 2}
    given |= properties | {"headers": headers | properties.get("headers", {})}
    return Properties(**given) if "message_id" in given else Foreign(**given)


BROKEN: dict[Reason, tuple[Properties, bytes]] = {
    Reason.MISSING_KEY: (message(None), GOOD),
    Reason.INVALID_KEY: (message("not\nprintable"), GOOD),
    Reason.UNKNOWN_TYPE: (message("unknown-type", message_type="other.v1"), GOOD),
    Reason.INVALID_TYPE: (message("invalid-type", message_type="a\0b"), GOOD),
    Reason.INVALID_PAYLOAD: (message("invalid-payload"), b"not json"),
    Reason.INVALID_DEADLINE: (message("naive", headers={"deadline": "2030-01-01T00:00:00"}), GOOD),
    Reason.INVALID_NOT_BEFORE: (message("no-time", headers={"not-before": "tomorrow"}), GOOD),
    Reason.INVALID_RUN: (message("no-run", headers={"run": ""}), GOOD),
    Reason.DEADLINE_EXCEEDED: (message("late", headers={"deadline": YESTERDAY}), GOOD),
    Reason.KEY_CONFLICT: (message("first"), b'{"steps": [{"do": "permanent"}]}'),
    Reason.UNDECODABLE: (message("undecodable", message_id=b"\xff\xfe"), GOOD),
}


async def publish_raw(place: Site, properties: Properties, body: bytes, routing_key: str = LANE) -> None:
    """Publish by a plain client, which checks nothing."""
    async with place.connection.channel() as channel:
        underlay = await channel.get_underlay_channel()
        await underlay.basic_publish(
            body, exchange=NAMES.ingress, routing_key=routing_key, properties=properties
        )


async def letters(dsn: str) -> list[tuple[str, str | None, int]]:
    """Reason, key and count of every dead letter."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch("SELECT reason, key, seen FROM acklast.dead_letters ORDER BY reason")
    finally:
        await connection.close()
    return [(row["reason"], row["key"], row["seen"]) for row in rows]


async def test_every_broken_message_becomes_a_dead_letter_and_the_lane_goes_on(
    new_site: NewSite, ledger_dsn: str
) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            await publish_raw(place, message("first"), GOOD)
            await place.reaches("first", State.DONE)
            for properties, body in BROKEN.values():
                await publish_raw(place, properties, body)
            await publish_raw(place, message("last"), GOOD)
            await place.reaches("last", State.DONE)

            async def all_kept() -> bool:
                return len(await letters(ledger_dsn)) >= len(BROKEN)

            await eventually(all_kept, what="a dead letter for each broken message")
            assert await daemon.drained() == Exit.OK
        assert await letters(ledger_dsn) == sorted(
            (reason.value, _known_key(reason, properties), 1) for reason, (properties, _) in BROKEN.items()
        )
        assert (await place.job("first")).state is State.DONE
        assert [call.key for call in place.log.calls()] == ["first", "last"]
        assert await place.ready() == {}


def _known_key(reason: Reason, properties: Properties) -> str | None:
    if reason in (Reason.MISSING_KEY, Reason.INVALID_KEY, Reason.UNDECODABLE):
        return None
    headers = properties.headers or {}
    return str(headers["job-key"])


UNPRINTABLE = f"{LANE}.\0"
"""A routing key that Postgres refuses as text."""


async def test_a_message_that_no_client_library_reads_does_not_stop_the_lane(
    new_site: NewSite, ledger_dsn: str
) -> None:
    """Each of these would end the library's connection, at every delivery again."""
    async with new_site() as place:
        await publish_raw(place, message("far", timestamp=2**64 - 1), GOOD)
        await publish_raw(place, message("bytes", headers={b"\xff": 1}), GOOD)
        await publish_raw(place, message("type", message_type=b"\xff"), GOOD)
        await publish_raw(place, message("last"), GOOD)
        with place.daemon() as daemon:
            await place.reaches("last", State.DONE)
            await eventually(place.is_drained, what="nothing is left")
            assert len(daemon.said("broker.connected", role="consumer")) == 1
            assert await daemon.drained() == Exit.OK
        assert await letters(ledger_dsn) == [("undecodable", None, 1), ("undecodable", None, 1)]
        assert {call.key for call in place.log.calls()} == {"far", "last"}


async def test_any_routing_key_is_kept_with_its_letter(new_site: NewSite, ledger_dsn: str) -> None:
    async with new_site() as place:
        await publish_raw(place, message("odd", message_type="other.v1"), GOOD, UNPRINTABLE)
        await publish_raw(place, message(None), GOOD, UNPRINTABLE)
        with place.daemon() as daemon:
            await eventually(lambda: _count(ledger_dsn, 2), what="both letters")
            assert await daemon.drained() == Exit.OK
        assert [reason for reason, _, _ in await letters(ledger_dsn)] == ["missing_key", "unknown_type"]
        assert await place.ready() == {}


async def _count(dsn: str, count: int) -> bool:
    return len(await letters(dsn)) == count


async def test_a_broken_message_that_comes_twice_is_one_letter_seen_twice(
    new_site: NewSite, ledger_dsn: str
) -> None:
    async with new_site() as place:
        with place.daemon(fault=Fault("acked")) as first:
            await publish_raw(place, message(None, app_id="twin"), GOOD)
            await first.dies_at_fault()
        with place.daemon() as second:
            await publish_raw(place, message(None, app_id="twin"), GOOD)

            async def seen_again() -> bool:
                # Three times where the dead daemon's ack had not reached the broker.
                return [seen >= 2 for _, _, seen in await letters(ledger_dsn)] == [True]

            await eventually(seen_again, what="the letter is seen again")
            assert await second.drained() == Exit.OK
        assert await place.ready() == {}


@one_receiver_else_soak
async def test_a_job_that_is_published_again_has_one_effect(new_site: NewSite) -> None:
    async with new_site() as place:
        job = scripted("twice", "done")
        with place.daemon() as daemon:
            await place.publish(job)
            await place.reaches("twice", State.DONE)
            await place.publish(job)
            await eventually(lambda: daemon.said("job.settled", disposition="decided"))
            await place.publish(job)
            await eventually(lambda: len(daemon.said("job.settled", disposition="decided")) == 2)
            assert await daemon.drained() == Exit.OK
        assert len(place.log.calls()) == 1
        assert (await place.job("twice")).attempts == 1
        assert await place.ready() == {}


@one_receiver_else_soak
async def test_a_copy_that_comes_while_the_first_is_at_work_waits(new_site: NewSite) -> None:
    async with new_site() as place:
        job = scripted("busy", {"do": "wait", "gate": "go"})
        with place.daemon() as daemon:
            await place.publish(job)
            await eventually(lambda: place.log.calls())
            await place.publish(job)
            await daemon.says("job.settled", disposition="held", key="busy")
            place.open_gate("go")
            await place.reaches("busy", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert len(place.log.calls()) == len(place.log.effects()) == 1


@one_receiver_else_soak
async def test_an_effect_in_the_ledger_s_own_database_commits_with_the_completion(
    new_site: NewSite, ledger_dsn: str
) -> None:
    async with new_site() as place:
        await _create_effects(ledger_dsn)
        await place.publish(scripted("paid", "insert"))
        with place.daemon(fault=Fault("effect")) as first:
            await first.dies_at_fault()
        # The handler's transaction recorded the verdict: nothing is left to run.
        assert (await place.job("paid")).state is State.DONE
        with place.daemon() as second:
            await second.says("job.settled", disposition="decided", key="paid")
            assert await second.drained() == Exit.OK
        assert await _inserted(ledger_dsn) == ["paid"]
        assert len(place.log.calls()) == 1
        assert (await place.job("paid")).result == {"inserted": "paid"}
        assert await place.ready() == {}


@one_receiver_else_soak
async def test_a_crash_inside_the_transaction_takes_the_effect_back(
    new_site: NewSite, ledger_dsn: str
) -> None:
    async with new_site() as place:
        await _create_effects(ledger_dsn)
        await place.publish(scripted("paid", "insert_and_die", "insert"))
        with place.daemon() as first:
            assert await first.ended() < 0
        assert await _inserted(ledger_dsn) == []
        with place.daemon() as second:
            await place.reaches("paid", State.DONE)
            assert await second.drained() == Exit.OK
        assert await _inserted(ledger_dsn) == ["paid"]
        assert [call.ambiguous for call in place.log.calls()] == [False, True]


async def _create_effects(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        # No unique key: a second insert must show.
        await connection.execute("CREATE TABLE public.effects (key text)")
    finally:
        await connection.close()


async def _inserted(dsn: str) -> list[str]:
    connection = await asyncpg.connect(dsn)
    try:
        return [row["key"] for row in await connection.fetch("SELECT key FROM public.effects")]
    finally:
        await connection.close()
