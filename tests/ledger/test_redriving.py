"""A redrive at work, in the ledger: whose it is, what is released and refused, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from acklast import letters as made_letters
from acklast.canary import Standing
from acklast.ledger import redrive_sql, redriving
from acklast.ledger.api import Claim, Claimed, Decided, Fresh, Kept, Session, State
from acklast.ledger.connect import Address
from acklast.ledger.dead_changes import Dropped, drop
from acklast.ledger.flush import SETTINGS
from acklast.ledger.missing import Search
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.prune import prune
from acklast.ledger.redriving import Attempted, Redrive, Redriving, Released, Rules
from acklast.ledger.retention import Dues, Keep
from acklast.outcome import Bury, Complete, Hold, Retry, Verdict
from acklast.resend import again
from acklast_topology import contract
from acklast_topology.message import Envelope, Malformed, RawMessage, Reason
from harness.redrives import begin, found, letters
from ledger.worlds import LANE, PostgresWorld, a_record, elsewhere, start, view

RULES = Rules(most=3, version="1.2.3")


def message(key: str, **more: Any) -> Envelope:
    given = {"headers": {"job-key": key, "tenant": b"\xff"}, "content_type": "application/json"} | more
    envelope = contract.parse(RawMessage(b'{"of": "it"}', **given))
    assert isinstance(envelope, Envelope)
    return envelope


@dataclass(frozen=True, slots=True)
class Scene:
    """A ledger with a session that works on redrives."""

    world: PostgresWorld
    session: Session
    redriving: Redriving

    async def claim(self, key: str, **more: Any) -> Claimed:
        envelope = message(key)
        claim = Claim(
            LANE, key, envelope.fingerprint, envelope.type, more.pop("run", None), None, None, None, **more
        )
        return await self.world.ledger.claim(self.session, claim)

    async def attempt(self, key: str, verdict: Verdict, *, frees: bool = True, **more: Any) -> None:
        """One attempt that comes to this."""
        fresh = await self.claim(key, **more)
        assert isinstance(fresh, Fresh), fresh
        letter = None
        if isinstance(verdict, Bury | Hold):
            letter = made_letters.of_job(LANE, message(key), verdict.reason, "no house")
        record = a_record(fresh, verdict, key, letter=letter, frees=frees)
        await self.world.ledger.record(self.session, record)

    async def bury(self, *keys: str, reason: str = "gone", **more: Any) -> None:
        for key in keys:
            await self.attempt(key, Bury(reason), **more)

    async def own(self, session: Session | None = None) -> list[Redrive]:
        return await self.redriving.own((session or self.session).id, [LANE])

    async def release(
        self, number: int, count: int = 100, session: Session | None = None, rules: Rules = RULES
    ) -> Released | None:
        """Release the next ones, as the daemon that owns the redrive does."""
        await self.own(session)
        [one] = [one for one in await self.own(session) if one.id == number]
        tried = [
            Attempted(letter.position, again(letter, letter.key))
            for letter in await self.redriving.next(number, 1, count)
        ]
        if not tried:
            return None
        return await self.redriving.release(one, (session or self.session).id, tried, rules)

    async def states(self, number: int) -> dict[str, str | None]:
        """By key: what became of it, or why it was refused."""
        rows = await letters(self.world.sql, number)
        return {row["key"]: row["refusal"] or row["outcome"] or row["state"] for row in rows}

    async def settled(self, number: int) -> Standing:
        answer = await self.redriving.settle(number, self.session.id)
        assert answer is not None, "nothing has come to an end"
        return answer.standing


@pytest.fixture
async def scene(postgres: PostgresWorld) -> AsyncIterator[Scene]:
    made = Scene(postgres, await start(postgres.ledger), Redriving(Address.of(postgres.dsn)))
    yield made
    await made.redriving.close()


# --- whose it is -------------------------------------------------------------------------------------


async def test_one_daemon_has_a_redrive_until_its_session_is_over(scene: Scene) -> None:
    await scene.bury("a")
    number = await begin(scene.world.sql, LANE)
    other = await start(await scene.world.another(), "two")
    assert [one.id for one in await scene.own()] == [number]
    assert [one.id for one in await scene.own()] == [number]
    assert await scene.own(other) == []
    await scene.world.run_out(scene.session)
    assert [one.id for one in await scene.own(other)] == [number]
    assert await scene.own() == []


async def test_of_two_that_ask_at_once_one_has_it(scene: Scene) -> None:
    await scene.bury("a")
    await begin(scene.world.sql, LANE)
    other = await start(await scene.world.another(), "two")
    second = Redriving(Address.of(scene.world.dsn))
    for _ in range(20):
        await scene.world.sql("update acklast.redrives set session = null")
        owned = await asyncio.gather(scene.own(), second.own(other.id, [LANE]))
        assert sum(map(len, owned)) == 1
    await second.close()


async def test_a_session_that_is_over_takes_nothing(scene: Scene) -> None:
    await scene.bury("a")
    await begin(scene.world.sql, LANE)
    await scene.world.run_out(scene.session)
    assert await scene.own() == []


async def test_another_lane_is_left_alone_and_so_is_what_is_only_planned(scene: Scene) -> None:
    await scene.bury("a")
    number = await begin(scene.world.sql, LANE)
    assert await scene.redriving.own(scene.session.id, ["other"]) == []
    await scene.world.sql("update acklast.redrives set status = 'planned' where id = $1", number)
    assert await scene.own() == []


async def test_who_has_lost_it_changes_nothing_more(scene: Scene) -> None:
    await scene.bury("a", "b")
    number = await begin(scene.world.sql, LANE)
    await scene.release(number, 1)
    [mine] = await scene.own()
    await scene.attempt("a", Complete())
    other = await start(await scene.world.another(), "two")
    await scene.world.sql("update acklast.redrives set session = $1", other.id)
    tried = [Attempted(two.position, again(two, two.key)) for two in await scene.redriving.next(number, 1, 9)]
    assert len(tried) == 1
    assert await scene.redriving.release(mine, scene.session.id, tried, RULES) is None
    assert await scene.redriving.settle(number, scene.session.id) is None
    await scene.redriving.sent(number, scene.session.id, [1])
    said: dict[str, Any] = {"verdict": "stopped"}
    told = scene.redriving.tell(
        mine, scene.session.id, "stopped", 0, said, worker="w", action="redrive.stopped"
    )
    assert not await told
    assert (await found(scene.world.sql, number))["status"] == "running"
    assert (await letters(scene.world.sql, number))[0]["sent_at"] is None
    assert await scene.states(number) == {"a": "released", "b": "planned"}
    assert await scene.world.sql("select from acklast.audit") == []


# --- release -----------------------------------------------------------------------------------------


async def test_a_released_job_is_queued_again_and_its_history_stays(scene: Scene) -> None:
    await scene.attempt("a", Retry((await scene.world.now()), "later"))
    await scene.bury("a")
    number = await begin(scene.world.sql, LANE)
    answer = await scene.release(number)
    assert answer is not None
    released, later = answer.redrive, answer.later
    assert (released.standing.released, released.standing.out, later) == (1, 1, 0)
    job = await view(scene.world.ledger, "a")
    assert (job.state, job.fence, job.attempts, job.reason) == (State.QUEUED, 3, 0, None)
    assert [attempt.outcome for attempt in job.history] == ["transient", "permanent"]
    [letter] = await scene.world.sql("select * from acklast.dead_letters")
    assert (letter["closed_as"], letter["payload"]) == ("redriven", b'{"of": "it"}')
    assert (await letters(scene.world.sql, number))[0]["at_fence"] == 3
    fresh = await scene.claim("a")
    assert isinstance(fresh, Fresh)
    assert (fresh.fence, fresh.attempt) == (4, 1)


async def test_what_may_have_had_its_effect_stays_in_doubt_unless_a_person_has_decided(scene: Scene) -> None:
    for key in ("a", "b"):
        await scene.attempt(key, Hold("who_knows"))
        await scene.world.sql("update acklast.jobs set ambiguous = true")
    number = await begin(scene.world.sql, LANE)
    await scene.release(number)
    assert await scene.states(number) == {"a": "unresolved", "b": "unresolved"}
    decided = await begin(scene.world.sql, LANE, decided=True)
    await scene.release(decided, 1)
    fresh = await scene.claim("a")
    assert isinstance(fresh, Fresh)
    assert not fresh.ambiguous
    # One that is dead and may have had its effect.
    await scene.world.sql("update acklast.jobs set state = 'dead' where key = 'b'")
    await scene.world.sql("update acklast.redrives set decided = false")
    await scene.release(decided, 1)
    fresh = await scene.claim("b")
    assert isinstance(fresh, Fresh)
    assert fresh.ambiguous


SPOILED = {
    "gone": "delete from acklast.dead_letters",
    "closed": "update acklast.dead_letters set closed_at = now(), closed_as = 'done'",
    "open": "update acklast.jobs set state = 'waiting'",
    "key_conflict": "update acklast.jobs set fingerprint = sha256('x')",
    "run_cancelled": """with c as (insert into acklast.cancelled_runs (run, actor, login, reason)
                        values ('r', '', '', '')) update acklast.jobs set run = 'r'""",
    "malformed": "update acklast.dead_letters set headers = '{\"deadline\": \"soon\"}', properties = '{}'",
}


@pytest.mark.parametrize(
    ("why", "spoil"),
    [
        *SPOILED.items(),
        ("gone", "update acklast.dead_letters set payload = null"),
        ("open", "update acklast.jobs set fence = fence + 1"),
        ("open", "delete from acklast.jobs"),
        ("unresolved", "update acklast.jobs set state = 'unresolved'"),
    ],
)
async def test_what_is_not_as_it_was_planned_is_refused(scene: Scene, why: str, spoil: str) -> None:
    await scene.bury("a")
    number = await begin(scene.world.sql, LANE)
    await scene.world.sql(spoil)
    jobs = await scene.world.sql("select * from acklast.jobs")
    answer = await scene.release(number)
    assert answer is not None
    standing = answer.redrive.standing
    assert (standing.released, standing.refused) == (0, 1)
    assert await scene.states(number) == {"a": why}
    assert await scene.world.sql("select * from acklast.jobs") == jobs


async def test_a_job_is_tried_so_often_and_no_more(scene: Scene) -> None:
    await scene.bury("a", reason="first")
    for n in range(3):
        number = await begin(scene.world.sql, LANE)
        await scene.release(number)
        assert await scene.states(number) == {"a": "released"}
        await scene.bury("a", reason=f"another {n}")
        await scene.settled(number)
    number = await begin(scene.world.sql, LANE, forced="I say so")
    await scene.release(number)
    assert await scene.states(number) == {"a": "capped"}


async def test_an_unchanged_failure_of_an_unchanged_version_is_tried_again_by_force_alone(
    scene: Scene,
) -> None:
    await scene.bury("a")
    first = await begin(scene.world.sql, LANE)
    await scene.release(first)
    await scene.bury("a")
    assert (await scene.settled(first)).same == 1
    again_ = await begin(scene.world.sql, LANE)
    await scene.release(again_)
    assert await scene.states(again_) == {"a": "unchanged"}
    newer = await begin(scene.world.sql, LANE)
    await scene.release(newer, rules=Rules(3, "2.0"))
    assert await scene.states(newer) == {"a": "released"}
    await scene.bury("a")
    await scene.settled(newer)
    forced = await begin(scene.world.sql, LANE, forced="I know better")
    await scene.release(forced)
    assert await scene.states(forced) == {"a": "released"}


async def test_a_job_is_in_one_redrive_at_a_time(scene: Scene) -> None:
    await scene.bury("a")
    numbers = [await begin(scene.world.sql, LANE) for _ in range(2)]
    await scene.release(numbers[0])
    await scene.release(numbers[1])
    assert [await scene.states(number) for number in numbers] == [{"a": "released"}, {"a": "in_redrive"}]


async def test_two_daemons_that_release_the_same_jobs_at_once_release_each_once(scene: Scene) -> None:
    keys = [f"k{n}" for n in range(30)]
    await scene.bury(*keys)
    numbers = [await begin(scene.world.sql, LANE) for _ in range(2)]
    other = await start(await scene.world.another(), "two")
    two = Scene(scene.world, other, Redriving(Address.of(scene.world.dsn)))
    await scene.world.sql("update acklast.redrives set session = case id when $1 then $2 else $3::bigint end",
                          numbers[0], scene.session.id, other.id)  # fmt: skip
    for _ in range(10):
        await asyncio.gather(scene.release(numbers[0], 5), two.release(numbers[1], 5))
    assert {row["fence"] for row in await scene.world.sql("select fence from acklast.jobs")} == {2}
    fates = [await scene.states(number) for number in numbers]
    for key in keys:
        assert sorted((fates[0][key] == "released", fates[1][key] == "released")) == [False, True]
    await two.redriving.close()


@pytest.mark.parametrize("table", ["jobs", "dead_letters"])
async def test_what_somebody_holds_is_left_for_later(scene: Scene, table: str) -> None:
    await scene.bury("a", "b")
    number = await begin(scene.world.sql, LANE)
    hold = f"select from acklast.{table} where key = 'a' for update"
    async with elsewhere(scene.world, hold):
        answer = await scene.release(number)
    assert answer is not None
    assert (answer.redrive.standing.released, answer.later) == (1, 1)
    assert await scene.states(number) == {"a": "planned", "b": "released"}
    await scene.release(number)
    assert await scene.states(number) == {"a": "released", "b": "released"}


async def stray(scene: Scene, key: str, reason: Reason = Reason.UNROUTED, **more: Any) -> None:
    raw = RawMessage(b"{}", headers={"job-key": key}, **more)
    letter = made_letters.of_stranded(LANE, Malformed(reason, "", key, raw), reason, "")
    await scene.world.ledger.bury_stray(letter, worker="w", version="1.2.3")


async def test_a_message_without_a_job_gets_one_and_one_whose_key_is_taken_does_not(scene: Scene) -> None:
    await scene.attempt("a", Complete())
    for key in ("a", "b", "c"):
        await stray(scene, key, type="t", priority=3)
    await scene.world.ledger.manifest("r", [])
    number = await begin(scene.world.sql, LANE)
    await scene.release(number)
    assert await scene.states(number) == {"a": "key_taken", "b": "released", "c": "released"}
    job = await view(scene.world.ledger, "b")
    assert (job.state, job.fence, job.type) == (State.QUEUED, 1, "t")
    await scene.world.sql("update acklast.jobs set state = 'done' where key = 'b'")
    assert (await scene.settled(number)).done == 1


async def test_two_strays_of_one_key_are_tried_one_after_the_other(scene: Scene) -> None:
    await stray(scene, "a", type="one")
    await stray(scene, "a", type="two")
    number = await begin(scene.world.sql, LANE)
    answer = await scene.release(number)
    assert answer is not None
    assert (answer.redrive.standing.released, answer.later) == (1, 1)
    await scene.release(number)
    rows = await letters(scene.world.sql, number)
    assert [row["refusal"] for row in rows] == [None, "in_redrive"]


async def test_nothing_is_released_once_a_person_has_said_so_or_in_another_step(scene: Scene) -> None:
    await scene.bury("a")
    number = await begin(scene.world.sql, LANE)
    [one] = await scene.own()
    tried = [Attempted(two.position, again(two, two.key)) for two in await scene.redriving.next(number, 1, 9)]
    await scene.world.sql("update acklast.redrives set status = 'paused'")
    assert await scene.redriving.release(one, scene.session.id, tried, RULES) is None
    await scene.world.sql("update acklast.redrives set status = 'running', step = 1")
    assert await scene.redriving.release(one, scene.session.id, tried, RULES) is None
    assert (await view(scene.world.ledger, "a")).state is State.DEAD


# --- what became of it -------------------------------------------------------------------------------


async def test_each_outcome_is_counted_as_what_it_is(scene: Scene) -> None:
    keys = ["done", "same", "other", "held", "cancelled", "gone", "open"]
    await scene.bury(*keys)
    number = await begin(scene.world.sql, LANE)
    await scene.release(number)
    assert await scene.redriving.settle(number, scene.session.id) is None
    await scene.attempt("done", Complete())
    await scene.attempt("same", Bury("gone"))
    await scene.attempt("other", Bury("shut"))
    await scene.attempt("held", Hold("who_knows"))
    await scene.world.ledger.cancel(LANE, "cancelled")
    await scene.world.sql("delete from acklast.jobs where key = 'gone'")
    await scene.claim("open")
    standing = await scene.settled(number)
    assert (standing.done, standing.same, standing.other, standing.out) == (1, 1, 4, 1)
    fates = await scene.states(number)
    assert fates == {
        "done": "done",
        "same": "dead",
        "other": "dead",
        "held": "unresolved",
        "cancelled": "cancelled",
        "gone": "gone",
        "open": "released",
    }
    rows = {row["key"]: row["new_reason"] for row in await letters(scene.world.sql, number)}
    assert (rows["same"], rows["other"], rows["held"], rows["done"]) == ("gone", "shut", "who_knows", None)
    assert await scene.redriving.settle(number, scene.session.id) is None


async def test_what_is_out_is_settled_though_the_redrive_was_cancelled(scene: Scene) -> None:
    await scene.bury("a", "b")
    number = await begin(scene.world.sql, LANE)
    await scene.release(number, 1)
    await scene.world.sql("update acklast.redrives set status = 'cancelled', session = null")
    assert [one.running for one in await scene.own()] == [False]
    await scene.attempt("a", Complete())
    await scene.settled(number)
    assert await scene.own() == []


async def test_a_run_that_is_cancelled_meanwhile_ends_its_jobs(scene: Scene) -> None:
    await scene.bury("a", run="r")
    number = await begin(scene.world.sql, LANE)
    await scene.release(number)
    await scene.world.cancel_run("r")
    assert (await scene.settled(number)).other == 1
    assert await scene.states(number) == {"a": "cancelled"}


async def test_what_is_to_be_published_is_told_until_the_broker_has_it(scene: Scene) -> None:
    await scene.bury("a", "b", "c")
    number = await begin(scene.world.sql, LANE)
    await scene.release(number)
    # A copy that was in the broker still has it already.
    assert isinstance(await scene.claim("b"), Fresh)
    unsent = await scene.redriving.unsent(number)
    assert [(one.key, one.due) for one in unsent] == [("a", True), ("b", False), ("c", True)]
    await scene.redriving.sent(number, scene.session.id, [1, 2])
    [left] = await scene.redriving.unsent(number)
    message_, envelope = again(left, left.key) or pytest.fail("it cannot be made again")
    assert envelope.raw.headers["tenant"] == b"\xff"
    assert message_.body == b'{"of": "it"}'


async def test_a_second_carrier_of_a_redriven_job_finds_what_became_of_it(scene: Scene) -> None:
    await scene.bury("a")
    await scene.release(await begin(scene.world.sql, LANE))
    await scene.attempt("a", Complete())
    answer = await scene.claim("a")
    assert isinstance(answer, Decided)
    assert answer.state is State.DONE


# --- custody and retention ---------------------------------------------------------------------------


async def custody(scene: Scene) -> list[str]:
    return [row["key"] for row in await scene.world.sql("select key from acklast.custody order by key")]


async def test_a_redriven_job_can_be_sent_again_and_leaves_nothing(
    scene: Scene,
) -> None:
    await scene.bury("a", "b", kept=Kept(b"\0" * 14, b"old"))
    await scene.world.sql(
        "insert into acklast.custody (lane, key, header, body) values ($1, 'b', '', 'stale')", LANE
    )
    number = await begin(scene.world.sql, LANE)
    await scene.release(number)
    assert await custody(scene) == ["a", "b"]
    assert {row["body"] for row in await scene.world.sql("select body from acklast.custody")} == {
        b'{"of": "it"}'
    }
    await scene.world.sql("update acklast.jobs set recorded_at = now() - interval '1 day'")
    search = await Search.connect(Address.of(scene.world.dsn))
    overdue = [job async for jobs, _, _ in search.overdue([LANE], 60) for job in jobs]
    assert [(job.key, job.kept) for job in overdue] == [("a", True), ("b", True)]
    await search.sweep()
    await search.close()
    for key in ("a", "b"):
        await scene.attempt(key, Complete())
    assert await custody(scene) == []


async def test_where_the_broker_has_the_messages_the_kept_one_goes_when_its_job_is_settled(
    scene: Scene,
) -> None:
    await scene.bury("a", "b")
    number = await begin(scene.world.sql, LANE)
    await scene.release(number)
    await scene.attempt("a", Complete(), frees=False)
    await scene.settled(number)
    assert await custody(scene) == ["b"]


async def test_a_released_job_is_not_overdue_at_once(scene: Scene) -> None:
    await scene.bury("a")
    await scene.world.grow_old(1)
    session = await start(scene.world.ledger)
    later = Scene(scene.world, session, scene.redriving)
    await later.release(await begin(scene.world.sql, LANE))
    search = await Search.connect(Address.of(scene.world.dsn))
    assert [job async for jobs, _, _ in search.overdue([LANE], 60) for job in jobs] == []
    await search.close()


async def test_retention_waits_for_a_redrive(scene: Scene) -> None:
    await scene.bury("a", "b")
    await stray(scene, "c")
    await stray(scene, "d")
    number = await begin(scene.world.sql, LANE)
    await scene.release(number)
    await scene.attempt("a", Complete())
    await scene.world.grow_old(10)
    await scene.world.sql("update acklast.jobs set state = 'done', recorded_at = enqueued_at where key = 'd'")
    keep = {LANE: Keep(86_400, 86_400, 3_600)}

    async def pruned() -> set[str]:
        async for _ in prune(Address.of(scene.world.dsn), keep, Dues(), dry_run=False):
            pass
        return {row["key"] for row in await scene.world.sql("select key from acklast.jobs")}

    # Done, and nobody has looked what became of it: its row stays. Open: so does the letter's payload.
    assert await pruned() == {"a", "b", "c", "d"}
    whole = {
        row["key"]
        for row in await scene.world.sql("select key from acklast.dead_letters where payload is not null")
    }
    assert whole >= {"b", "c"}
    later = Scene(scene.world, await start(scene.world.ledger), scene.redriving)
    await later.own()
    assert (await later.settled(number)).done == 2
    assert await pruned() == {"b", "c"}


async def test_the_letter_of_a_job_at_work_is_not_dropped(scene: Scene) -> None:
    await stray(scene, "c")
    await scene.release(await begin(scene.world.sql, LANE))
    operations = await Operations.connect(Address.of(scene.world.dsn))
    [letter] = await scene.world.sql("select id from acklast.dead_letters")
    assert await drop(operations, [letter["id"]], "why", Operator("a", "b")) == Dropped(kept=1)
    operations.close()


# --- what is said ------------------------------------------------------------------------------------


async def test_a_decision_is_put_down_once_and_with_its_audit(scene: Scene) -> None:
    await scene.bury("a")
    number = await begin(scene.world.sql, LANE)
    [one] = await scene.own()
    said: dict[str, Any] = {"verdict": "stopped", "accepted": {"same": 2, "other": 1, "live": True}}
    for told in (True, False):
        answer = await scene.redriving.tell(
            one, scene.session.id, "stopped", 0, said, worker="w1", action="redrive.stopped"
        )
        assert answer is told
    [entry] = await scene.world.sql("select actor, action, lane, detail->>'redrive' as of from acklast.audit")
    assert tuple(entry) == ("w1", "redrive.stopped", LANE, str(number))
    await scene.world.sql("update acklast.redrives set status = 'running'")
    [one] = await scene.own()
    assert (one.standing.accepted.same, one.standing.accepted.other, one.standing.accepted.live) == (
        2,
        1,
        True,
    )


async def test_failures_of_other_jobs_are_told_from_its_own(scene: Scene) -> None:
    await scene.bury("a", "b", "c")
    number = await begin(scene.world.sql, LANE)
    await scene.release(number, 2)
    [one] = await scene.own()
    _, mark = await scene.redriving.live(one, None)
    await scene.bury("a")
    await scene.bury("b", "x", reason="shut")
    await scene.bury("y")
    live, _ = await scene.redriving.live(one, mark)
    assert live.since == 2
    await scene.settled(number)
    live, _ = await scene.redriving.live(one, mark)
    assert live.since == 2
    kinds = await scene.redriving.kinds(number, LANE, mark.at)
    assert sorted((kind["reason"], kind["count"], kind["key"], kind["live"]) for kind in kinds) == [
        ("gone", 1, "a", 1),
        ("shut", 1, "b", 1),
    ]


async def test_failures_before_the_start_are_counted_over_as_long_a_time(scene: Scene) -> None:
    await scene.bury("a", "b")
    number = await begin(scene.world.sql, LANE)
    [one] = await scene.own()
    _, mark = await scene.redriving.live(one, None)
    earlier = "update acklast.dead_counts set last_at = $1::timestamptz - interval '1 millisecond'"
    await scene.world.sql(earlier, one.started_at)
    live, _ = await scene.redriving.live(one, mark)
    assert live.before == 2
    assert number


# --- size --------------------------------------------------------------------------------------------


async def test_of_large_messages_only_as_many_as_fit_are_read_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.bury("a", "b", "c", "d")
    large = "update acklast.dead_letters set payload = convert_to(repeat('x', $2), 'UTF8') where key = $1"
    for key, size in [("a", 90), ("b", 10), ("c", 101), ("d", 1)]:
        await scene.world.sql(large, key, size)
    number = await begin(scene.world.sql, LANE)
    monkeypatch.setattr(redriving, "BATCH_BYTES", 100)

    async def keys(first: int) -> list[str]:
        return [letter.key for letter in await scene.redriving.next(number, first, 100)]

    assert await keys(1) == ["a", "b"]
    assert await keys(3) == ["c"], "one that is larger than a batch goes alone"
    assert await keys(4) == ["d"]

    await scene.world.sql("update acklast.redrive_letters set state = 'released', at_fence = 2")
    assert [letter.key for letter in await scene.redriving.unsent(number)] == ["a", "b"]
    await scene.world.sql("update acklast.redrive_letters set sent_at = now() where key in ('a', 'b')")
    assert [letter.key for letter in await scene.redriving.unsent(number)] == ["c"]


@pytest.mark.parametrize(
    ("statement", "arguments"),
    [
        (redrive_sql.UNSENT, (1, 1, 500, 2**24)),
        (redrive_sql.SENT, (1, 1, [1, 2])),
        (redrive_sql.NEXT, (1, 1, 500, 2**24)),
        (redrive_sql.SETTLE, (1, 1, 500)),
        (redrive_sql.RELEASE, (1, 1, 0, 3, "1", [1], [b""], [b""], [None], [None], [None], [None])),
        (redrive_sql.TRAFFIC, (1, LANE)),
    ],
    ids=["unsent", "sent", "next", "settle", "release", "traffic"],
)
async def test_no_look_reads_a_whole_table(
    unseen_postgres: PostgresWorld, statement: str, arguments: tuple[Any, ...]
) -> None:
    address = Address.of(unseen_postgres.dsn)
    connection = await address.open(SETTINGS)
    try:
        rows = await connection.fetch(f"explain {statement}", *arguments)
    finally:
        await connection.close()
    plan = "\n".join(row[0] for row in rows)
    for table in ("redrive_letters", "dead_letters", "jobs"):
        assert f"Seq Scan on {table}" not in plan, plan
        assert f"using {table}" in plan or table not in plan, plan
