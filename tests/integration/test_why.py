"""``acklast why`` beside real servers and daemons: each reason is brought about, and told with evidence."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.publish import Job
from harness import Broker, eventually
from harness.scripted import LANE, TYPE
from harness.site import RUN, Site, scripted, site

Sql: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
NEXT_HOUR = datetime.now(UTC) + timedelta(hours=1)


@pytest.fixture
async def sql(ledger_dsn: str) -> AsyncIterator[Sql]:
    connection = await asyncpg.connect(ledger_dsn)
    yield connection
    await connection.close()


async def why(place: Site, key: str, code: int, *more: str) -> Mapping[str, Any]:
    """The reasons of the only answer, by their codes."""
    [answer] = (await place.command("why", key, *more, code=code))["answers"]
    return {reason["code"]: reason for reason in answer["reasons"]}


async def comes(place: Site, key: str, code: str) -> Mapping[str, Any]:
    """Wait until this reason is told; it."""

    async def told() -> Any:
        exit_code, out = await place.answer("why", key)
        assert exit_code in (Exit.OK, Exit.UNFIT, Exit.NOT_FOUND), out
        reasons = [reason for answer in out["answers"] for reason in answer["reasons"]]
        return next((one for one in reasons if one["code"] == code), None)

    found: Mapping[str, Any] = await eventually(told, 30, f"{key} is {code}")
    return found


async def test_what_a_daemon_has_made_of_each_job_is_told(
    broker: Broker, ledger_dsn: str, tmp_path: Path, sql: Sql
) -> None:
    more: dict[str, Any] = {"on_unknown": "hold", "backoff_base_s": 50_000.0, "backoff_cap_s": 50_000.0}
    async with site(tmp_path, broker.url, ledger_dsn, **more) as place:
        jobs = [
            scripted("fine", "done"),
            scripted("bad", "permanent"),
            scripted("unsure", "unknown"),
            scripted("again", "transient"),
            scripted("slow", {"do": "wait", "gate": "go"}),
        ]
        await place.promise([*jobs, scripted("gone", "done")])
        promised = scripted("promised-later", "done", not_before=NEXT_HOUR)
        await place.promise([promised])
        await sql.execute("update acklast.jobs set enqueued_at = now() - interval '1 h' where key = 'gone'")
        with place.daemon() as daemon:
            await daemon.ready()
            # Its queues are seen empty, and nothing is held: the manifest's word is all there is of it.
            lost = (await why(place, "gone", Exit.UNFIT))["lost"]
            assert (lost["certain"], lost["evidence"]["kept"]) == (True, False)

            later = scripted("later", "done", not_before=NEXT_HOUR)
            await place.publish(*jobs, later, promised, Job.json("wrok", "typo", {"steps": []}, type=TYPE))
            await place.reaches("fine", State.DONE)
            assert (await why(place, "fine", Exit.OK))["done"]["evidence"]["result"] == {"key": "fine"}

            await place.reaches("bad", State.DEAD)
            dead = (await why(place, "bad", Exit.UNFIT))["dead"]
            assert (dead["need"], dead["evidence"]["reason"]) == ("act", "refused")
            assert dead["helps"].startswith(f"acklast dead show {dead['evidence']['letter']}; then acklast")

            await place.reaches("unsure", State.UNRESOLVED)
            unsure = (await why(place, "unsure", Exit.UNFIT, "--lane", LANE))["unresolved"]
            assert unsure["evidence"]["reason"] == "no_answer"

            retry = await comes(place, "again", "retry")
            assert (retry["need"], retry["evidence"]["attempts"]) == ("wait", 1)
            assert retry["evidence"]["last"]["reason"] == "not_now"

            waits = await comes(place, "later", "not_before")
            assert datetime.fromisoformat(waits["evidence"]["available_at"]) == NEXT_HOUR
            told = await comes(place, "promised-later", "not_before")
            assert datetime.fromisoformat(told["evidence"]["available_at"]) == NEXT_HOUR
            # Now that something waits for its time it might be that, for all that the ledger knows.
            assert (await comes(place, "gone", "maybe_delayed"))["certain"] is False

            running = (await why(place, "slow", Exit.OK))["running_now"]
            assert (running["evidence"]["attempt"], running["certain"]) == (1, True)
            assert running["evidence"]["worker"].startswith("one@")
            assert running["evidence"]["usual"]["jobs"] == 1

            typo = await comes(place, "typo", "unrouted")
            assert typo["evidence"]["routing_key"] == "wrok"

            daemon.signal(signal.SIGKILL)
            await daemon.ended()
        await sql.execute("update acklast.workers set lease_until = now() - interval '5 s'")
        orphan = await why(place, "slow", Exit.UNFIT)
        assert orphan["orphaned"]["evidence"]["worker"] == running["evidence"]["worker"]
        assert orphan["orphaned"]["evidence"]["on_unknown"] == "hold"
        assert orphan["no_daemon"]["helps"] == f"acklast run --lane {LANE}"


async def test_what_holds_a_whole_lane_up_is_told_of_its_jobs(
    broker: Broker, ledger_dsn: str, tmp_path: Path, sql: Sql
) -> None:
    async with site(tmp_path, broker.url, ledger_dsn, quota="100 per 1 s") as place:
        first, held = scripted("first", {"do": "rate_limited", "retry_after": 300}), scripted("held", "done")
        await place.promise([first, held])
        with place.daemon():
            await place.publish(first)
            limited = await comes(place, "first", "rate_limited")
            assert (limited["need"], limited["evidence"]["rate_limited"]) == ("wait", 1)
            await place.publish(held)
            quiet = await comes(place, "held", "quiet")
            assert quiet["evidence"]["budget"] == "api"
            assert datetime.fromisoformat(quiet["evidence"]["until"]) > datetime.now(UTC) + timedelta(
                minutes=3
            )

            await place.command("lanes", "pause", LANE, "--reason", "provider is down", "--as", "duty")
            paused = (await why(place, "held", Exit.UNFIT))["lane_paused"]
            assert (paused["evidence"]["actor"], paused["helps"]) == ("duty", f"acklast lanes resume {LANE}")
            assert "provider is down" in paused["says"]

            await place.command("runs", "cancel", RUN, "--reason", "wrong list", "--as", "duty")
            cancelled = (await why(place, "held", Exit.OK))["cancelled"]
            assert (cancelled["evidence"]["actor"], cancelled["evidence"]["reason"]) == ("duty", "wrong list")


async def test_what_has_no_daemon_and_no_job_is_told_no_more_certainly_than_it_is(
    broker: Broker, ledger_dsn: str, tmp_path: Path, sql: Sql
) -> None:
    async with site(tmp_path, broker.url, ledger_dsn) as place:
        await place.promise([scripted("k", "done")])
        await place.publish(scripted("k", "done"), scripted("other", "done"))
        await sql.execute("select acklast.enqueue($1, 'promised', '{}')", LANE)

        async def all_there() -> bool:
            return (await place.ready()).get(f"acklast.v1.{LANE}.work") == 2

        await eventually(all_there, 10, "both are in the queue")
        [answer] = (await place.command("why", "k", code=Exit.UNFIT))["answers"]
        assert [reason["code"] for reason in answer["reasons"]] == ["no_daemon", "behind"]
        assert (answer["state"], answer["position"]["ahead"]) == ("queued", 1)

        unknown = (await why(place, "other", Exit.NOT_FOUND))["unknown"]
        assert (unknown["certain"], unknown["evidence"]["ready"]) == (False, {LANE: 2})
        assert "behind 2 messages (a queue of the broker cannot be searched)" in unknown["says"]

        assert (await why(place, "promised", Exit.OK))["unpublished"]["need"] == "wait"
        await sql.execute("update acklast.outbox set due_at = now() - interval '10 min'")
        promised = (await why(place, "promised", Exit.UNFIT))["unpublished"]
        assert promised["evidence"]["oldest_due_for_s"] >= 600
        assert promised["helps"] == "acklast relay"

        assert (await place.answer("why", "k", "--lane", "nope"))[0] == Exit.USAGE
        place.config.write_text(place.config.read_text().replace(broker.url, "amqp://127.0.0.1:1/"))
        blind = await why(place, "k", Exit.UNFIT)
        assert {"no_daemon", "broker_unseen", "due"} == {*blind}
