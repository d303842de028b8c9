"""Redrives planned, started and changed by people, on the real thing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from acklast.ledger.api import Session, State
from acklast.ledger.connect import Address
from acklast.ledger.dead import Wanted, page
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.prune import prune
from acklast.ledger.redrive_changes import Start, WrongStatus, cancel, go_on, pause, resume, start, stop
from acklast.ledger.redrive_plan import (
    Meant,
    NothingToRedrive,
    SeveralLanes,
    all_unchanged,
    plan,
    preview,
)
from acklast.ledger.redrives import (
    PAGE,
    NoSuchRedrive,
    Redrive,
    RedriveStatus,
    of_letter,
    one,
    redrives,
    trials,
)
from acklast.ledger.retention import Dues, Keep, Pruned
from acklast.outcome import Bury, Complete, Hold
from ledger.worlds import LANE, PostgresWorld, a_letter, record, started
from ledger.worlds import start as open_session

WHO = Operator("day-shift", "anna@desk")
DAY_S = 86_400.0
CAP = 3
ALL = Meant(Wanted(lane=LANE))
SLOWLY = Start([1, 2], 5.0, 0.0, None)


@pytest.fixture
async def operations(postgres: PostgresWorld) -> AsyncIterator[Operations]:
    made = await Operations.connect(Address.of(postgres.dsn), patient=True)
    yield made
    made.close()


@pytest.fixture
async def session(postgres: PostgresWorld) -> Session:
    return await open_session(postgres.ledger)


async def bury(
    postgres: PostgresWorld,
    session: Session,
    key: str,
    reason: str = "gone",
    run: str | None = None,
    **more: Any,
) -> None:
    fresh = await started(postgres.ledger, session, key, run=run, **more)
    letter = a_letter(key, reason, run=run, detail="no house")
    await record(postgres.ledger, session, fresh, Bury(reason), key, letter=letter)


async def planned(operations: Operations, meant: Meant = ALL) -> Redrive:
    return await plan(operations, meant, CAP, WHO)


async def keys(operations: Operations, redrive: Redrive) -> list[str]:
    return [one.key for one in await trials(operations, redrive.id, 10_000)]


async def audited(postgres: PostgresWorld) -> list[tuple[str, str | None, dict[str, Any]]]:
    rows = await postgres.sql("select action, lane, detail from acklast.audit order by id")
    return [(row["action"], row["lane"], json.loads(row["detail"])) for row in rows]


# --- the set ------------------------------------------------------------------------------------------


async def test_a_plan_is_the_letters_that_were_there(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    await bury(postgres, session, "a", run="r1")
    await bury(postgres, session, "b", "shut")
    made = await planned(operations)
    await bury(postgres, session, "later")
    assert (made.lane, made.status, made.letters, made.excluded) == (LANE, RedriveStatus.PLANNED, 2, {})
    assert made.selection == {"lane": LANE}
    assert sorted(await keys(operations, made)) == ["a", "b"]
    [first, second] = await trials(operations, made.id, 10)
    assert (first.position, second.position, first.state) == (1, 2, "planned")
    [(action, lane, effect)] = await audited(postgres)
    assert (action, lane, effect["redrive"], effect["letters"]) == ("redrive.plan", LANE, str(made.id), 2)
    found = await preview(operations, made, "1.2.3")
    assert [(kind.reason, kind.run, kind.letters, kind.versions) for kind in found.kinds] == [
        ("gone", "r1", 1, ["1.2.3"]),
        ("shut", None, 1, ["1.2.3"]),
    ]
    assert (found.unchanged, found.past_deadline, found.versions, found.more) == (0, 0, [], False)
    letters = await page(operations, Wanted(), 9)
    assert found.oldest == min(entry.last_failure_at for entry in letters if entry.key != "later")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(run="r1"), ["a", "b"]),
        (Wanted(run=""), ["c"]),
        (Wanted(reason="shut"), ["b"]),
        (Wanted(lane=LANE, reason="gone", run="r1"), ["a"]),
    ],
)
async def test_a_selection_is_as_for_a_list(
    operations: Operations, postgres: PostgresWorld, session: Session, wanted: Wanted, expected: list[str]
) -> None:
    await bury(postgres, session, "a", run="r1")
    await bury(postgres, session, "b", "shut", "r1")
    await bury(postgres, session, "c")
    assert sorted(await keys(operations, await planned(operations, Meant(wanted)))) == expected
    entries = await page(operations, Wanted(), 9)
    of_one = Meant(replace(Wanted(), since=entries[0].last_failure_at))
    assert await keys(operations, await planned(operations, of_one)) == ["c"]
    of_others = Meant(Wanted(lane=LANE, until=entries[0].last_failure_at))
    assert sorted(await keys(operations, await planned(operations, of_others))) == ["a", "b"]
    by_id = Meant(letters=(entries[1].id, entries[2].id))
    assert sorted(await keys(operations, await planned(operations, by_id))) == ["a", "b"]


async def test_every_kind_is_among_the_first(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    for number in range(12):
        await bury(postgres, session, f"common-{number:02}")
    await bury(postgres, session, "rare", "shut")
    await bury(postgres, session, "old")
    await postgres.sql("update acklast.dead_letters set version = '1.1.0' where key = 'old'")
    first, second = await planned(operations), await planned(operations)
    orders = [await keys(operations, one) for one in (first, second)]
    for order in orders:
        assert {"rare", "old"} < set(order[:3])
        assert len(set(order)) == 14
    # By chance behind them: not as they came, and another time otherwise.
    commons = [[key for key in order if key.startswith("common")] for order in orders]
    assert commons[0] != sorted(commons[0]) or commons[1] != sorted(commons[1])
    assert commons[0] != commons[1]


async def test_what_cannot_be_tried_is_left_out_and_counted_by_why(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    ledger = postgres.ledger
    for key in ("fine", "emptied", "open", "capped", "taken", "twice"):
        await bury(postgres, session, key)
    await bury(postgres, session, "ended", run="ended")
    held = await started(ledger, session, "held")
    await record(ledger, session, held, Hold("unknown"), "held")
    await record(ledger, session, await started(ledger, session, "there"), Complete(), "there")
    for number, letter in enumerate(
        [
            a_letter(None, "missing_key"),
            a_letter("conflict", "key_conflict"),
            a_letter("bad", "invalid_deadline"),
            a_letter("worse", "broker_expired", detail="expired; besides, invalid_deadline: naive"),
            a_letter("there", "broker_expired"),
            a_letter("routed", "unrouted"),
            a_letter("limit", "broker_delivery_limit"),
        ]
    ):
        await ledger.bury_stray(replace(letter, digest=bytes([number])), worker="w", version="1")
    await postgres.cancel_run("ended")
    await postgres.sql("update acklast.dead_letters set payload = null where key = 'emptied'")
    await postgres.sql("update acklast.jobs set state = 'waiting' where key = 'open'")
    await postgres.sql(
        "insert into acklast.dead_letters (lane, key, fence, reason, failure, payload, first_failure_at,"
        " last_failure_at, worker, version) select lane, key, fence, reason, failure, payload,"
        " first_failure_at, last_failure_at, worker, version from acklast.dead_letters where key = 'twice'"
    )
    busy = await planned(operations, Meant(letters=await ids(postgres, "taken", "capped")))
    await start(operations, busy.id, SLOWLY, "mended", WHO)
    await postgres.sql(
        "insert into acklast.redrive_letters (redrive, position, letter, lane, key, reason, failure, version,"
        " state, released_at) select $1, 10 + n, 1, $2, 'capped', '', '', '', 'settled', now()"
        " from generate_series(1, 3) as n",
        busy.id,
        LANE,
    )
    await postgres.sql("delete from acklast.redrive_letters where key = 'capped' and state = 'planned'")
    made = await planned(operations)
    assert sorted(await keys(operations, made)) == ["fine", "limit", "routed", "twice"]
    assert made.excluded == {
        "no_key": 1,
        "key_conflict": 1,
        "gone": 1,
        "malformed": 2,
        "key_taken": 1,
        "unresolved": 1,
        "open": 1,
        "older": 1,
        "in_redrive": 1,
        "capped": 1,
        "run_cancelled": 1,
    }
    await cancel(operations, busy.id, "no need", WHO)
    assert "in_redrive" not in (await planned(operations)).excluded


async def ids(postgres: PostgresWorld, *keys: str) -> tuple[int, ...]:
    rows = await postgres.sql("select id from acklast.dead_letters where key = any($1) order by id", keys)
    return tuple(row["id"] for row in rows)


async def test_nothing_is_planned_where_nothing_can_be(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    with pytest.raises(NothingToRedrive, match="no dead letter is meant"):
        await planned(operations)
    with pytest.raises(NothingToRedrive, match="no dead letter is meant"):
        await planned(operations, Meant(letters=(7,)))
    await bury(postgres, session, "a")
    await postgres.sql("update acklast.dead_letters set payload = null")
    with pytest.raises(NothingToRedrive, match=r"none of the 1 letters.* 1 have lost their message"):
        await planned(operations)
    await postgres.sql(
        "update acklast.dead_letters set payload = '', closed_at = now(), closed_as = 'redriven'"
    )
    with pytest.raises(NothingToRedrive, match="no dead letter is meant"):
        await planned(operations)
    with pytest.raises(NothingToRedrive, match="1 are tried again or done already"):
        await planned(operations, Meant(letters=await ids(postgres, "a")))
    assert await redrives(operations, 9) == []
    assert await audited(postgres) == []


async def test_a_redrive_is_of_one_lane(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    await bury(postgres, session, "a", run="r1")
    await bury(postgres, session, "b", run="r1")
    await postgres.sql("update acklast.dead_letters set lane = 'other' where key = 'b'")
    await postgres.sql("update acklast.jobs set lane = 'other' where key = 'b'")
    for meant in (Meant(Wanted(run="r1")), Meant(letters=await ids(postgres, "a", "b"))):
        with pytest.raises(SeveralLanes, match=f"2 lanes: {LANE}, other"):
            await planned(operations, meant)
    assert (await planned(operations, Meant(Wanted(lane="other")))).lane == "other"
    by_id = Meant(letters=await ids(postgres, "b"))
    assert (await planned(operations, by_id)).lane == "other"


async def test_letters_of_no_lane_are_nobodys(operations: Operations, postgres: PostgresWorld) -> None:
    letter = replace(a_letter("k", "unrouted"), lane="", digest=b"d")
    await postgres.ledger.bury_stray(letter, worker="w", version="1")
    for wanted in (Wanted(reason="unrouted"), Wanted(lane="", reason="unrouted")):
        with pytest.raises(NothingToRedrive, match="of no lane"):
            await planned(operations, Meant(wanted))


async def test_jobs_past_their_deadline_are_told(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    now = await postgres.now()
    await bury(postgres, session, "late", deadline=now + timedelta(hours=1))
    await bury(postgres, session, "in time", deadline=now + timedelta(hours=1))
    await postgres.sql("update acklast.jobs set deadline = now() - interval '1 s' where key = 'late'")
    assert (await preview(operations, await planned(operations), "1")).past_deadline == 1


# --- unchanged ----------------------------------------------------------------------------------------


async def failed_again(postgres: PostgresWorld, redrive: Redrive) -> None:
    """As a daemon leaves a redrive whose letters all failed of the same."""
    await postgres.sql(
        "update acklast.redrive_letters set state = 'settled', released_at = now(), settled_at = now(),"
        " outcome = 'dead', new_reason = reason, new_failure = failure where redrive = $1",
        redrive.id,
    )
    await postgres.sql(
        "update acklast.redrives set status = 'finished', ended_at = now(), released = letters,"
        " same = letters where id = $1",
        redrive.id,
    )


async def test_what_failed_of_the_same_with_the_same_version_is_unchanged(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    await bury(postgres, session, "a")
    await failed_again(postgres, await planned(operations))
    again = await planned(operations)
    assert (await preview(operations, again, "1.2.3")).unchanged == 1
    assert (await preview(operations, again, "1.2.4")).unchanged == 0
    assert await all_unchanged(operations, again.id, ["1.2.3"])
    assert not await all_unchanged(operations, again.id, ["1.2.4"])
    # What runs the lane counts, whatever this command's configuration says.
    await postgres.sql(
        "insert into acklast.lane_reports (session, lane, heard, concurrency, in_flight, held, started,"
        " window_s, state) values ($1, $2, 0, 1, 0, 0, 0, 1, 'open')",
        session.id,
        LANE,
    )
    found = await preview(operations, again, "1.2.4")
    assert (found.versions, found.unchanged) == (["1.2.3"], 1)
    await bury(postgres, session, "new")
    mixed = await planned(operations)
    assert (await preview(operations, mixed, "1.2.3")).unchanged == 1
    assert not await all_unchanged(operations, mixed.id, ["1.2.3"])


# --- its life -----------------------------------------------------------------------------------------


@pytest.fixture
async def a_plan(operations: Operations, postgres: PostgresWorld, session: Session) -> Redrive:
    await bury(postgres, session, "a")
    await bury(postgres, session, "b")
    return await planned(operations)


async def test_each_change_is_one_entry_in_the_audit(
    operations: Operations, postgres: PostgresWorld, a_plan: Redrive
) -> None:
    number = a_plan.id
    await start(operations, number, Start([1, 2], 2.5, 0.02, "the provider mended it"), "INC-1", WHO)
    begun = await one(operations, number)
    assert (begun.status, begun.steps, begun.rate_per_s, begun.tolerate) == ("running", [1, 2], 2.5, 0.02)
    assert (begun.reason, begun.forced, begun.step) == ("INC-1", "the provider mended it", 0)
    assert begun.started_at is not None
    assert begun.step_at is not None
    assert await pause(operations, number, "a look", WHO)
    assert not await pause(operations, number, "a look", WHO)
    assert await resume(operations, number, "", WHO)
    assert await cancel(operations, number, "no need", WHO)
    assert not await cancel(operations, number, "no need", WHO)
    assert (await one(operations, number)).ended_at is not None
    entries = await audited(postgres)
    assert [action for action, _, _ in entries] == [
        f"redrive.{name}" for name in ("plan", "start", "pause", "resume", "cancel")
    ]
    assert [(lane, effect["redrive"]) for _, lane, effect in entries] == [(LANE, str(number))] * 5
    assert [effect.get("reason") for _, _, effect in entries] == [None, "INC-1", "a look", None, "no need"]
    assert (entries[1][2]["steps"], entries[1][2]["forced"]) == ([1, 2], "the provider mended it")


@pytest.mark.parametrize("status", ["stopped", "asking"])
async def test_a_verdict_accepts_what_has_failed_so_far(
    operations: Operations, postgres: PostgresWorld, a_plan: Redrive, status: str
) -> None:
    number = a_plan.id
    await start(operations, number, SLOWLY, "INC-1", WHO)
    set_ = "update acklast.redrives set status = $2, same = 1, said = $3 where id = $1"
    await postgres.sql(set_, number, status, '{"verdict": "stop"}')
    await go_on(operations, number, 0.02, "they are known", WHO)
    found = await one(operations, number)
    assert (found.status, found.tolerate) == ("running", 0.02)
    assert found.said == {"verdict": "stop", "accepted": {"same": 1, "other": 0, "live": False}}
    for said in ('{"why": "live_fails_more"}', '{"accepted": {"live": true}}'):
        await postgres.sql(set_, number, status, said)
        await go_on(operations, number, None, "they are known", WHO)
        found = await one(operations, number)
        assert found.said is not None
        assert (found.tolerate, found.said["accepted"]["live"]) == (0.02, True)
    await postgres.sql(set_, number, status, None)
    await stop(operations, number, "it is not mended", WHO)
    assert (await one(operations, number)).status is RedriveStatus.CANCELLED
    verdicts = [effect for action, _, effect in await audited(postgres) if action == "redrive.verdict"]
    assert [(effect["verdict"], effect["from"]) for effect in verdicts] == [
        *[("go-on", status)] * 3,
        ("stop", status),
    ]


async def test_what_does_not_fit_its_status_is_refused(
    operations: Operations, postgres: PostgresWorld, a_plan: Redrive
) -> None:
    number = a_plan.id
    for change in (pause, resume):
        with pytest.raises(WrongStatus, match="is planned"):
            await change(operations, number, "x", WHO)
    with pytest.raises(WrongStatus):
        await go_on(operations, number, None, "x", WHO)
    await start(operations, number, SLOWLY, "INC-1", WHO)
    with pytest.raises(WrongStatus, match="is running: it cannot be started"):
        await start(operations, number, SLOWLY, "INC-1", WHO)
    with pytest.raises(WrongStatus):
        await stop(operations, number, "x", WHO)
    await postgres.sql("update acklast.redrives set status = 'stopped'")
    with pytest.raises(WrongStatus, match="verdict"):
        await resume(operations, number, "x", WHO)
    await postgres.sql("update acklast.redrives set status = 'finished', ended_at = now()")
    for change in (pause, resume, cancel):
        with pytest.raises(WrongStatus, match="is finished"):
            await change(operations, number, "x", WHO)
    for change in (pause, resume, cancel):
        with pytest.raises(NoSuchRedrive):
            await change(operations, 999, "x", WHO)
    assert [action for action, _, _ in await audited(postgres)] == ["redrive.plan", "redrive.start"]


async def test_redrives_are_listed_the_latest_first(operations: Operations, a_plan: Redrive) -> None:
    second, third = await planned(operations), await planned(operations)
    await cancel(operations, second.id, "no need", WHO)
    assert [found.id for found in await redrives(operations, 9)] == [third.id, second.id, a_plan.id]
    assert [found.id for found in await redrives(operations, 1, before=third.id)] == [second.id]
    assert [found.id for found in await redrives(operations, 9, statuses=[RedriveStatus.CANCELLED])] == [
        second.id
    ]
    assert await redrives(operations, 9, lane="other") == []


async def test_a_letter_and_its_job_know_their_redrives(
    operations: Operations, postgres: PostgresWorld, a_plan: Redrive
) -> None:
    await failed_again(postgres, a_plan)
    [letter] = await ids(postgres, "a")
    [trial] = await of_letter(operations, letter, LANE, "a")
    assert (trial.redrive, trial.outcome, trial.new_failure) == (a_plan.id, "dead", trial.failure)
    [job] = await postgres.ledger.jobs("a")
    assert (job.state, [one.redrive for one in job.redrives]) == (State.DEAD, [a_plan.id])


# --- retention ----------------------------------------------------------------------------------------


async def pruned(postgres: PostgresWorld, *, dry_run: bool = False) -> Pruned:
    told = Pruned()
    keeps = {LANE: Keep(DAY_S, 30 * DAY_S, 30 * DAY_S), "other": Keep(DAY_S, 90 * DAY_S, 9 * DAY_S)}
    async for step in prune(Address.of(postgres.dsn), keeps, Dues(), dry_run=dry_run):
        told += step.pruned
    return told


async def test_an_old_plan_and_an_old_redrive_go_with_their_letters(
    operations: Operations, postgres: PostgresWorld, a_plan: Redrive
) -> None:
    ended, running = await planned(operations), await planned(operations)
    await start(operations, ended.id, SLOWLY, "x", WHO)
    await start(operations, running.id, SLOWLY, "x", WHO)
    await cancel(operations, ended.id, "x", WHO)
    back = (
        "update acklast.redrives set planned_at = planned_at - $1::interval,"
        " ended_at = ended_at - $1::interval"
    )
    await postgres.sql(back, timedelta(days=89))
    assert (await pruned(postgres)).redrives == 0
    await postgres.sql(back, timedelta(days=2))
    assert (await pruned(postgres, dry_run=True)).redrives == 2
    assert (await pruned(postgres)).redrives == 2
    assert [found.id for found in await redrives(operations, 9)] == [running.id]
    left = await postgres.sql("select distinct redrive from acklast.redrive_letters")
    assert [row["redrive"] for row in left] == [running.id]
    assert a_plan.id not in (ended.id, running.id)


# --- many of them -------------------------------------------------------------------------------------

_FILL = """
with j as (
    insert into acklast.jobs (lane, key, state, fence, recorded_at)
    select $1, 'key-' || n, 'dead', 1, now() from generate_series(1, $2::int) as n
)
insert into acklast.dead_letters (lane, key, fence, reason, failure, payload, first_failure_at,
                                  last_failure_at, worker, version)
select $1, 'key-' || n, 1, 'gone', 'v1-' || n % 3, 'payload', now(), now(), 'w', '1'
from generate_series(1, $2::int) as n
"""


async def buffers(operations: Operations, redrive: int, after: int) -> int:
    """Pages that the server reads for one page of a redrive's letters."""
    [[text]] = await operations.fetch(f"explain (analyze, buffers, format json) {PAGE}", redrive, after, 50)
    found = json.loads(text)[0]["Plan"]
    assert found["Actual Rows"] == 50
    return int(found["Shared Hit Blocks"] + found["Shared Read Blocks"])


async def many(operations: Operations, postgres: PostgresWorld, count: int) -> Redrive:
    await postgres.sql(_FILL, LANE, count)
    made = await planned(operations)
    assert made.letters == count
    first, far = await buffers(operations, made.id, 0), await buffers(operations, made.id, count - 50)
    assert far < 2 * first + 20
    head = Counter(trial.failure for trial in await trials(operations, made.id, 3))
    assert head == dict.fromkeys(("v1-0", "v1-1", "v1-2"), 1)
    found = await preview(operations, made, "1")
    assert sum(kind.letters for kind in found.kinds) == count
    return made


async def test_a_page_of_a_set_costs_the_same_wherever_it_is(
    operations: Operations, postgres: PostgresWorld
) -> None:
    await failed_again(postgres, await many(operations, postgres, 3000))
    again = await planned(operations)
    assert (await preview(operations, again, "1")).unchanged == 3000
    assert await all_unchanged(operations, again.id, ["1"])


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_a_million_letters_are_planned(operations: Operations, postgres: PostgresWorld) -> None:
    await many(operations, postgres, 1_000_000)
