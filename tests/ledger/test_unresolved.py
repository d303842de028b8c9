"""Unresolved jobs in the ledger: paged through, decided on, asked about, each by one owner."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from acklast.ledger.api import Session, State
from acklast.ledger.connect import Address
from acklast.ledger.dead import Wanted
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.prune import prune
from acklast.ledger.reconciling import Answer, Buried, Effect, Found, Question, Questions
from acklast.ledger.retention import Dues, Keep
from acklast.ledger.unresolved import PAGE, Held, asked_of, named, page, page_arguments
from acklast.ledger.unresolved_asks import answers, ask
from acklast.ledger.unresolved_changes import As, Changed, Decision, Refusal, look, resolve
from acklast.outcome import Bury, Hold
from ledger.worlds import LANE, PostgresWorld, a_letter, record, start, started

WHO = Operator("day-shift", "anna@desk")
WHY = "the provider was down"
DAY_S = 86_400.0
MOST = 2


@pytest.fixture
async def operations(postgres: PostgresWorld) -> AsyncIterator[Operations]:
    made = await Operations.connect(Address.of(postgres.dsn))
    yield made
    made.close()


@pytest.fixture
async def questions(postgres: PostgresWorld) -> AsyncIterator[Questions]:
    made = Questions(Address.of(postgres.dsn), [LANE], MOST)
    yield made
    await made.close()


@pytest.fixture
async def session(postgres: PostgresWorld) -> Session:
    return await start(postgres.ledger)


async def hold(
    postgres: PostgresWorld, session: Session, *keys: str, run: str | None = None, reason: str = "timeout"
) -> None:
    for key in keys:
        fresh = await started(postgres.ledger, session, key, run=run)
        letter = a_letter(key, reason, run=run, detail=f"no answer for {key}")
        await record(postgres.ledger, session, fresh, Hold(reason), key, letter=letter)


async def held(operations: Operations, **wanted: Any) -> dict[str, Held]:
    return {one.entry.key or "": one for one in await page(operations, Wanted(**wanted), 100)}


async def ids(operations: Operations, *keys: str) -> list[int]:
    found = await held(operations)
    return [found[key].entry.id for key in keys]


def decided(how: As, **more: Any) -> Decision:
    return Decision(how, WHY, WHO, 3, **more)


async def state(postgres: PostgresWorld, key: str) -> tuple[State, str | None, Any]:
    [view] = await postgres.ledger.jobs(key, LANE)
    return view.state, view.reason, view.result


async def taken(questions: Questions, session: Session) -> Question:
    question = await questions.take(LANE, session.id)
    assert question is not None
    return question


async def answer(postgres: PostgresWorld, found: Found, effect: Effect, **more: Any) -> Answer:
    now = await postgres.now()
    return Answer(found, effect, now - timedelta(seconds=1), now, **more)


# --- pages ----------------------------------------------------------------------------------------------


async def test_a_page_has_those_that_wait_for_a_decision(
    postgres: PostgresWorld, operations: Operations, session: Session
) -> None:
    await hold(postgres, session, "a", "b", run="r")
    await hold(postgres, session, "c", reason="crashed")
    fresh = await started(postgres.ledger, session, "dead")
    await record(postgres.ledger, session, fresh, Bury("gone"), "dead", letter=a_letter("dead", "gone"))
    await hold(postgres, session, "cancelled")
    await postgres.ledger.cancel(LANE, "cancelled")
    assert list(await held(operations)) == ["c", "b", "a"]
    [cancelled] = await postgres.sql(
        "select held, closed_at from acklast.dead_letters where key = 'cancelled'"
    )
    assert tuple(cancelled) == (False, None)
    assert list(await held(operations, run="r")) == ["b", "a"]
    assert list(await held(operations, run="")) == ["c"]
    assert list(await held(operations, reason="crashed", lane=LANE)) == ["c"]
    assert list(await held(operations, lane="other")) == []
    assert list(await held(operations, since=await postgres.now())) == []
    first = await page(operations, Wanted(), 2)
    assert [one.entry.key for one in await page(operations, Wanted(), 2, first[-1].entry.cursor)] == ["a"]
    [letter] = await ids(operations, "a")
    assert [one.id for one in await named(operations, [], ["a", "dead"])] == [letter]
    assert [one.key for one in await named(operations, [letter], [])] == ["a"]


OLDER = """
with recorded as (update acklast.jobs set state = $1 where key = $2 returning lane, key, fence)
insert into acklast.dead_letters (lane, key, fence, reason, failure, first_failure_at, last_failure_at,
                                  worker, version)
select lane, key, fence, 'no_answer', 'v1-1', now(), now(), 'w', '1' from recorded
"""
"""As a daemon files a letter that has never heard of held ones."""


async def test_what_an_older_daemon_leaves_unresolved_waits_here_too(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    for key, state in (("u", "unresolved"), ("d", "dead")):
        await started(postgres.ledger, session, key)
        await postgres.sql(OLDER, state, key)
    assert list(await held(operations)) == ["u"]
    letters = await postgres.sql("select key, held from acklast.dead_letters order by key")
    assert [tuple(one) for one in letters] == [("d", False), ("u", True)]


@pytest.mark.soak
async def test_a_page_costs_what_it_shows_however_many_other_letters_there_are(
    unseen_postgres: PostgresWorld,
) -> None:
    session = await start(unseen_postgres.ledger)
    await hold(unseen_postgres, session, *(f"h{n}" for n in range(50)))
    await unseen_postgres.sql(
        "insert into acklast.dead_letters (lane, key, fence, reason, failure, first_failure_at,"
        " last_failure_at, worker, version)"
        " select $1, 'd' || n, 1, 'gone', 'f', clock_timestamp(), clock_timestamp(), 'w', '1'"
        " from generate_series(1, 40000) n",
        LANE,
    )
    await unseen_postgres.sql("analyze acklast.dead_letters, acklast.jobs")
    [[pages]] = await unseen_postgres.sql(
        "select pg_relation_size('acklast.dead_letters') / current_setting('block_size')::int"
    )
    for wanted in (Wanted(), Wanted(lane=LANE), Wanted(reason="timeout")):
        [[text]] = await unseen_postgres.sql(
            f"explain (analyze, buffers, format json) {PAGE}", *page_arguments(wanted, None, 3)
        )
        plan = json.loads(text)[0]["Plan"]
        assert plan["Actual Rows"] == 3
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 500 < pages


# --- decisions ------------------------------------------------------------------------------------------


async def test_a_decision_ends_the_job_and_is_put_down(
    postgres: PostgresWorld, operations: Operations, session: Session
) -> None:
    await hold(postgres, session, "done", "dead", run="r")
    [done, dead] = await ids(operations, "done", "dead")
    assert await look(operations, [done, dead], decided(As.DONE)) == Changed(2)
    assert await resolve(operations, [done], decided(As.DONE, result={"id": 7})) == Changed(1)
    assert await resolve(operations, [dead], decided(As.DEAD)) == Changed(1)
    assert await state(postgres, "done") == (State.DONE, None, {"id": 7})
    assert await state(postgres, "dead") == (State.DEAD, "timeout", None)
    run = await postgres.ledger.run("r")
    assert run is not None
    assert run.counts == {State.DONE: 1, State.DEAD: 1}
    letters = await postgres.sql(
        "select d.held, d.closed_as, d.fence, j.fence as now from acklast.dead_letters d"
        " join acklast.jobs j using (lane, key) order by d.id"
    )
    assert [tuple(row) for row in letters] == [(True, "done", 2, 2), (False, None, 2, 2)]
    entries = await postgres.sql(
        "select actor, action, key, run, detail->>'as' as how, detail->>'reason' as why from acklast.audit"
    )
    assert [tuple(row) for row in entries] == [
        ("day-shift", "unresolved.resolve", "done", "r", "done", WHY),
        ("day-shift", "unresolved.resolve", "dead", "r", "dead", WHY),
    ]
    again = await resolve(operations, [done, dead, 999], decided(As.DEAD))
    assert again == Changed(0, {Refusal.NOT_UNRESOLVED: 3})


async def test_a_retry_is_a_redrive_that_somebody_has_decided_on(
    postgres: PostgresWorld, operations: Operations, session: Session
) -> None:
    await hold(postgres, session, "a", "b", "stopped", "empty", "tried")
    await hold(postgres, session, "of-run", run="r")
    await postgres.cancel_run("r")
    letters = await ids(operations, "a", "b", "of-run", "empty", "tried")
    await postgres.sql("update acklast.dead_letters set payload = null where key = 'empty'")
    await postgres.sql(
        "with r as (insert into acklast.redrives (lane, selection, letters, actor, login)"
        "           values ($1, '{}', 1, 'w', 'l') returning id)"
        " insert into acklast.redrive_letters (redrive, position, letter, lane, key, reason, failure,"
        "                                      version, released_at)"
        " select r.id, n, 1, $1, 'tried', 'r', 'f', '1', now() from r, generate_series(1, 3) n",
        LANE,
    )
    told = await resolve(operations, letters, decided(As.RETRY, selection={"lane": LANE}))
    refused = {Refusal.RUN_CANCELLED: 1, Refusal.NO_CONTENT: 1, Refusal.CAPPED: 1}
    assert (told.changed, told.refused, len(told.redrives)) == (2, refused, 1)
    [redrive] = await postgres.sql("select * from acklast.redrives where id = any($1)", list(told.redrives))
    assert (redrive["status"], redrive["decided"], redrive["steps"]) == ("running", True, [2])
    assert (redrive["letters"], redrive["actor"], redrive["reason"]) == (2, "day-shift", WHY)
    frozen = await postgres.sql(
        "select l.key, l.state, l.fence = j.fence as same, j.state as job, d.fence = j.fence as letter"
        " from acklast.redrive_letters l join acklast.jobs j using (lane, key)"
        " join acklast.dead_letters d on d.id = l.letter where redrive = $1 order by position",
        redrive["id"],
    )
    assert [tuple(row) for row in frozen] == [
        ("a", "planned", True, "unresolved", True),
        ("b", "planned", True, "unresolved", True),
    ]
    assert (await held(operations))["a"].retried
    again = await resolve(operations, letters[:1], decided(As.DONE))
    assert again == Changed(0, {Refusal.BEING_RETRIED: 1})
    await postgres.sql("update acklast.redrives set status = 'cancelled', ended_at = now()")
    assert await resolve(operations, letters[:1], decided(As.DONE)) == Changed(1)


async def test_of_two_who_decide_at_once_one_is_in_time(
    postgres: PostgresWorld, operations: Operations, session: Session
) -> None:
    keys = [f"k{number}" for number in range(20)]
    await hold(postgres, session, *keys)
    letters = await ids(operations, *keys)
    other = await Operations.connect(Address.of(postgres.dsn))
    try:
        told = await asyncio.gather(
            resolve(operations, letters, decided(As.DONE)), resolve(other, letters, decided(As.DEAD))
        )
    finally:
        other.close()
    # What one holds the other leaves, so together they may leave some: whoever repeats it, finds out.
    assert all(one.changed + sum(one.refused.values()) == 20 for one in told)
    run = [await state(postgres, key) for key in keys]
    assert sum(one.changed for one in told) == sum(found[0] is not State.UNRESOLVED for found in run) > 0
    [[entries]] = await postgres.sql("select count(*) from acklast.audit")
    assert entries == sum(one.changed for one in told)


# --- questions ------------------------------------------------------------------------------------------


async def test_a_question_has_one_owner_until_its_session_is_over(
    postgres: PostgresWorld, operations: Operations, questions: Questions, session: Session
) -> None:
    await hold(postgres, session, "a", "b")
    asked = await ask(operations, await ids(operations, "a", "b"), WHY, WHO, [])
    assert (len(asked.ids), asked.joined) == (2, 0)
    again = await ask(operations, await ids(operations, "a"), WHY, WHO, [])
    assert (again.ids, again.joined) == (asked.ids[:1], 1)
    assert await questions.waiting(session.id) == {LANE: 2}
    other = await start(postgres.ledger, "other")
    mine, theirs = await taken(questions, session), await taken(questions, other)
    assert (mine.key, theirs.key) == ("a", "b")
    assert await questions.take(LANE, other.id) is None
    assert await questions.waiting(other.id) == {}
    questions.done_with(theirs)  # as if it had never heard of it
    assert await questions.waiting(other.id) == {LANE: 1}
    assert await questions.waiting(session.id) == {}
    assert (await taken(questions, other)).id == theirs.id
    await questions.release(theirs)
    assert (await taken(questions, session)).key == "b"
    await postgres.run_out(session)
    assert await questions.take(LANE, session.id) is None
    assert (await taken(questions, other)).id == mine.id
    happened = await answer(postgres, Found.HAPPENED, Effect.DONE)
    assert not await questions.answer(mine, happened)
    assert (await state(postgres, "a"))[0] is State.UNRESOLVED
    assert await questions.answer(replace(mine, session=other.id), happened)
    assert (await state(postgres, "a"))[0] is State.DONE
    [view] = await postgres.ledger.jobs("a", LANE)
    assert [one.outcome for one in view.history].count("reconciled") == 1


async def test_what_is_found_is_put_down_with_what_follows(
    postgres: PostgresWorld, operations: Operations, questions: Questions, session: Session
) -> None:
    await hold(postgres, session, "happened", "late", "unknown", "not", run="r")
    await ask(operations, await ids(operations, "happened", "late", "unknown", "not"), WHY, WHO, [])
    assert (await held(operations))["not"].asked
    buried = Buried("deadline_exceeded", "too late", "f" * 16)
    said = {
        "happened": await answer(postgres, Found.HAPPENED, Effect.DONE, result={"id": 1}),
        "late": await answer(postgres, Found.NOT_HAPPENED, Effect.DEAD, buried=buried),
        "not": await answer(postgres, Found.NOT_HAPPENED, Effect.RETRY),
        "unknown": await answer(postgres, Found.UNKNOWN, Effect.UNRESOLVED, code="timeout", detail="in f()"),
    }
    for key, one in said.items():
        question = await taken(questions, session)
        subject = await questions.subject(question)
        assert subject is not None
        assert (question.key, subject.letter.entry.key, subject.letter.payload) == (key, key, b"body")
        assert await questions.answer(question, one)
        assert await questions.answer(question, one)  # its first answer may have been lost on the way
        [view] = await postgres.ledger.jobs(key, LANE)
        assert [(tried.fence, tried.reason) for tried in view.history[1:]] == [(2, one.code or one.found)]
    assert await state(postgres, "happened") == (State.DONE, None, {"id": 1})
    assert await state(postgres, "late") == (State.DEAD, "deadline_exceeded", None)
    found = await held(operations)
    assert {key: (one.found, one.code, one.asked) for key, one in found.items()} == {
        "unknown": ("unknown", "timeout", False),
        "not": ("not_happened", None, True),
    }
    assert not found["not"].retried
    await questions.retry()
    assert (await held(operations))["not"].retried
    counts = await answers(operations, list(range(1, 5)))
    assert counts == {"done": 1, "dead": 1, "unresolved": 1, "retry": 1}
    [redrive] = await postgres.sql("select * from acklast.redrives")
    assert (redrive["actor"], redrive["login"], redrive["reason"]) == ("day-shift", "anna@desk", WHY)
    [late] = await postgres.sql("select * from acklast.dead_letters where key = 'late'")
    assert (late["held"], late["reason"], late["failure"]) == (False, "deadline_exceeded", "f" * 16)
    groups = await postgres.sql(
        "select reason, sum(letters)::int as n from acklast.dead_counts group by reason order by reason"
    )
    assert [tuple(row) for row in groups] == [("deadline_exceeded", 1), ("timeout", 2)]
    told = await postgres.sql(
        "select actor, key, detail->>'effect' as effect from acklast.audit where action = 'unresolved.found'"
    )
    assert {tuple(row) for row in told} == {
        ("day-shift", "happened", "done"),
        ("day-shift", "late", "dead"),
        ("day-shift", "unknown", "unresolved"),
        ("day-shift", "not", "retry"),
    }
    [asked] = await asked_of(operations, LANE, "unknown")
    assert (asked.worker, asked.code, asked.effect) == ("one:1", "timeout", "unresolved")


async def test_what_was_tried_often_enough_is_not_said_to_run_again(
    postgres: PostgresWorld, operations: Operations, questions: Questions, session: Session
) -> None:
    await hold(postgres, session, "often", "once")
    tried = """
    with past as (insert into acklast.redrives (lane, status, selection, letters, actor, login)
                  values ($1, 'finished', '{}', $3, 'me', 'me') returning id)
    insert into acklast.redrive_letters (redrive, position, letter, lane, key, reason, failure, version,
                                         state, released_at)
    select id, n, 1, $1, $2, 'timeout', 'f', '1', 'settled', now() from past, generate_series(1, $3::int) n
    """
    await postgres.sql(tried, LANE, "often", MOST)
    await postgres.sql(tried, LANE, "once", MOST - 1)
    asked = await ask(operations, await ids(operations, "often", "once"), WHY, WHO, [])
    for _ in range(2):
        question = await taken(questions, session)
        assert await questions.answer(question, await answer(postgres, Found.NOT_HAPPENED, Effect.RETRY))
    await questions.retry()
    assert await answers(operations, asked.ids) == {"unresolved": 1, "retry": 1}
    found = await held(operations)
    assert (found["often"].found, found["often"].code) == ("not_happened", "capped")
    assert (found["often"].retried, found["once"].retried) == (False, True)


async def test_a_person_who_decides_is_ahead_of_the_answer(
    postgres: PostgresWorld, operations: Operations, questions: Questions, session: Session
) -> None:
    keys = ["cancelled", "found-first", "resolved", "retried"]
    await hold(postgres, session, *keys)
    letters = dict(zip(keys, await ids(operations, *keys), strict=True))
    await ask(operations, list(letters.values()), WHY, WHO, [])
    took = {question.key: question for question in [await taken(questions, session) for _ in keys]}
    happened = await answer(postgres, Found.HAPPENED, Effect.DONE)
    nothing = await answer(postgres, Found.NOT_HAPPENED, Effect.RETRY)
    await resolve(operations, [letters["resolved"]], decided(As.DEAD))
    await postgres.ledger.cancel(LANE, "cancelled")
    assert await questions.answer(took["found-first"], nothing)
    await resolve(operations, [letters["found-first"]], decided(As.DONE))
    await resolve(operations, [letters["retried"]], decided(As.RETRY))
    for key in ("cancelled", "resolved", "retried"):
        assert await questions.subject(took[key]) is None
        assert not await questions.answer(took[key], happened)
    await questions.retry()
    effects = await postgres.sql("select key, effect from acklast.reconciliations order by key")
    assert [tuple(row) for row in effects] == [(key, "superseded") for key in keys]
    assert [(await state(postgres, key))[0] for key in keys] == [
        State.CANCELLED,
        State.DONE,
        State.DEAD,
        State.UNRESOLVED,
    ]
    assert len(await postgres.sql("select from acklast.redrives")) == 1


async def test_nothing_is_retried_that_cannot_be_any_more(
    postgres: PostgresWorld, operations: Operations, questions: Questions, session: Session
) -> None:
    await hold(postgres, session, "a", run="r")
    await ask(operations, await ids(operations, "a"), WHY, WHO, [])
    nothing = await answer(postgres, Found.NOT_HAPPENED, Effect.RETRY)
    assert await questions.answer(await taken(questions, session), nothing)
    await postgres.cancel_run("r")
    await questions.retry()
    [asked] = await asked_of(operations, LANE, "a")
    assert (asked.found, asked.effect) == ("not_happened", "superseded")
    assert not await postgres.sql("select from acklast.redrives")
    assert not (await held(operations))["a"].asked


async def test_questions_go_with_their_job(
    postgres: PostgresWorld, operations: Operations, questions: Questions, session: Session
) -> None:
    await hold(postgres, session, "a")
    await ask(operations, await ids(operations, "a"), WHY, WHO, [])
    said = await answer(postgres, Found.HAPPENED, Effect.DONE)
    assert await questions.answer(await taken(questions, session), said)
    await postgres.grow_old(3)
    keeps = {LANE: Keep(DAY_S, DAY_S, DAY_S)}
    async for _ in prune(Address.of(postgres.dsn), keeps, Dues(), dry_run=False):
        pass
    assert not await postgres.ledger.jobs("a", LANE)
    assert not await postgres.sql("select from acklast.reconciliations")
