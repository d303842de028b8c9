"""What is erased of a key, and what stays, on the real thing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest

from acklast.ledger.api import Session, State
from acklast.ledger.connect import Address
from acklast.ledger.erase import LANES, STATEMENTS, Erased, Left, erase, lanes_of
from acklast.ledger.operate import Operations, Operator
from acklast.outcome import Bury, Complete, Hold, Retry
from ledger.worlds import LANE, PostgresWorld, a_letter, elsewhere, record, start, started, view

WHO = Operator("day-shift", "anna@desk")
WHY = "they asked us to"
SECRET = "anna@example"


@pytest.fixture
async def operations(postgres: PostgresWorld) -> AsyncIterator[Operations]:
    made = await Operations.connect(Address.of(postgres.dsn))
    yield made
    made.close()


@pytest.fixture
async def session(postgres: PostgresWorld) -> Session:
    return await start(postgres.ledger)


async def erased(operations: Operations, lane: str = LANE, *, dry_run: bool = False) -> Erased | Left:
    return await erase(operations, lane, "k", WHY, WHO, dry_run=dry_run)


async def content(postgres: PostgresWorld) -> str:
    """All that the ledger holds, as text."""
    tables = ("jobs", "attempts", "dead_letters", "custody", "outbox", "audit", "dead_counts")
    rows = [await postgres.sql(f"select t::text from acklast.{name} t") for name in tables]
    held = "\n".join(row[0] for found in rows for row in found)
    return re.sub(r"\\\\x([0-9a-f]+)", lambda found: bytes.fromhex(found[1]).decode(errors="replace"), held)


async def dead(postgres: PostgresWorld, session: Session, key: str = "k") -> None:
    """A dead job that was tried before, with the secret in all that can hold one, and a stray of its key."""
    fresh = await started(postgres.ledger, session, key, run="r1")
    again = Retry(fresh.now, "timeout")
    await record(postgres.ledger, session, fresh, again, key, detail=f"no answer for {SECRET}")
    fresh = await started(postgres.ledger, session, key)
    letter = a_letter(
        key,
        "refused",
        payload=SECRET.encode(),
        headers={"mail": SECRET},
        properties={"reply": SECRET},
        detail=f"{SECRET} is unknown",
    )
    await record(postgres.ledger, session, fresh, Bury("refused"), key, detail=f"{SECRET}!", letter=letter)
    await postgres.ledger.bury_stray(replace(letter, digest=b"d"), worker="w", version="1")
    kept = "insert into acklast.custody (lane, key, header, body) values ($1, $2, $3, $3)"
    await postgres.sql(kept, LANE, key, SECRET.encode())
    promised = "insert into acklast.outbox (lane, key, payload) values ($1, $2, $3)"
    await postgres.sql(promised, LANE, key, SECRET.encode())


async def test_the_content_goes_and_the_account_stays(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    await dead(postgres, session)
    before, counts = await view(postgres.ledger), await postgres.sql("select * from acklast.dead_counts")
    assert SECRET in await content(postgres)
    assert await erased(operations) == Erased(LANE, letters=2, attempts=2, kept=1, outbox=1)
    assert SECRET not in await content(postgres)
    after = await view(postgres.ledger)
    assert [letter.failure for letter in after.letters] == [letter.failure for letter in before.letters]
    quiet = [replace(one, detail="") for one in before.history]
    assert (list(after.history), after.attempts) == (quiet, before.attempts)
    assert replace(after, history=(), letters=()) == replace(before, history=(), letters=())
    assert await postgres.sql("select * from acklast.dead_counts") == counts
    [entry] = await postgres.sql("select * from acklast.audit where action = 'ledger.erase'")
    assert (entry["actor"], entry["lane"], entry["key"]) == ("day-shift", LANE, "k")
    told = json.loads(entry["detail"])
    assert told["reason"] == WHY
    assert {name: told[name] for name in ("letters", "attempts", "results", "kept", "outbox")} == {
        "letters": 2,
        "attempts": 2,
        "results": 0,
        "kept": 1,
        "outbox": 1,
    }


async def test_the_result_of_a_job_goes_and_a_repeat_puts_nothing_down(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    fresh = await started(postgres.ledger, session)
    await record(postgres.ledger, session, fresh, Complete({"mail": SECRET}))
    before = await view(postgres.ledger)
    assert await erased(operations, dry_run=True) == Erased(LANE, results=1)
    assert await view(postgres.ledger) == before
    assert await erased(operations) == Erased(LANE, results=1)
    assert await view(postgres.ledger) == replace(before, result=None)
    assert await erased(operations) == Erased(LANE)
    assert len(await postgres.sql("select from acklast.audit")) == 1


@pytest.mark.parametrize("state", ["queued", "claimed", "waiting", "unresolved"])
async def test_a_job_that_is_not_over_is_left_with_all_that_is_its(
    operations: Operations, postgres: PostgresWorld, session: Session, state: str
) -> None:
    await dead(postgres, session)
    await postgres.sql("update acklast.jobs set state = $1, result = '1'", state)
    before = await content(postgres)
    told = await erased(operations)
    assert isinstance(told, Left)
    assert told.why == state
    assert ("unresolved" in told.remedy) == (state == "unresolved")
    assert await content(postgres) == before


async def test_a_job_that_is_only_promised_is_left(operations: Operations, postgres: PostgresWorld) -> None:
    await postgres.sql("select acklast.enqueue($1, 'k', '{}')", LANE)
    stray = replace(a_letter("k"), digest=b"d")
    await postgres.ledger.bury_stray(stray, worker="w", version="1")
    told = await erased(operations)
    assert isinstance(told, Left)
    assert told.why == "promised"
    assert len(await postgres.sql("select from acklast.outbox")) == 1
    assert len(await postgres.sql("select from acklast.dead_letters where payload is not null")) == 1


async def test_a_stray_without_a_job_is_erased_in_every_lane(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    for lane, key in [("", "k"), (LANE, "k"), ("mail", "k"), ("mail", "other"), ("rent", None)]:
        letter = replace(a_letter(key), lane=lane, digest=f"{lane} {key}".encode())
        await postgres.ledger.bury_stray(letter, worker="w", version="1")
    held = await started(postgres.ledger, session, "held")
    await record(postgres.ledger, session, held, Hold("unknown"), "held")
    assert await lanes_of(operations, "k") == ["", LANE, "mail"]
    assert await lanes_of(operations, "held") == [LANE]
    assert await lanes_of(operations, "nobody") == []
    for lane in await lanes_of(operations, "k"):
        assert await erased(operations, lane) == Erased(lane, letters=1)
    whole = await postgres.sql(
        "select lane, key from acklast.dead_letters where payload is not null order by lane"
    )
    assert [tuple(row) for row in whole] == [(LANE, "held"), ("mail", "other"), ("rent", None)]


async def test_an_erased_letter_that_comes_again_is_whole_again(
    operations: Operations, postgres: PostgresWorld
) -> None:
    stray = replace(a_letter("k", headers={"a": 1}, properties={"b": 2}), digest=b"d")
    await postgres.ledger.bury_stray(stray, worker="w", version="1")
    assert await erased(operations) == Erased(LANE, letters=1)
    await postgres.ledger.bury_stray(stray, worker="w", version="1")
    [row] = await postgres.sql("select payload, headers, properties, seen from acklast.dead_letters")
    assert tuple(row) == (b"body", '{"a": 1}', '{"b": 2}', 2)


async def test_what_somebody_holds_is_told_and_left(
    operations: Operations, postgres: PostgresWorld, session: Session
) -> None:
    await dead(postgres, session)
    await operations.fetch("select set_config('lock_timeout', '50ms', false)")
    async with elsewhere(postgres, "select from acklast.jobs for update"):
        told = await erased(operations)
    assert isinstance(told, Left)
    assert told.why == "locked"
    async with elsewhere(postgres, "select from acklast.outbox for update"):
        assert isinstance(await erased(operations), Left)
    assert SECRET in await content(postgres)
    assert isinstance(await erased(operations), Erased)
    assert (await view(postgres.ledger)).state is State.DEAD


_FILL = """
create temporary table filled as
select 'l' || n % 4 as lane, n::text as key from generate_series(1, 20000) as n;
insert into acklast.jobs (lane, key, state) select lane, key, 'dead' from filled;
insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, worker, version)
select lane, key, 1, 1, 'permanent', '', 'w', '1' from filled;
insert into acklast.dead_letters (lane, key, reason, failure, first_failure_at, last_failure_at, worker,
                                  version)
select lane, key, 'r', 'f', now(), now(), 'w', '1' from filled;
insert into acklast.custody (lane, key, header, body) select lane, key, '', '' from filled;
insert into acklast.outbox (lane, key, payload) select lane, key, '' from filled;
analyze acklast.jobs, acklast.attempts, acklast.dead_letters, acklast.custody, acklast.outbox;
"""


async def test_whatever_the_ledger_holds_a_key_is_found_by_an_index(unseen_postgres: PostgresWorld) -> None:
    connection = await asyncpg.connect(
        unseen_postgres.dsn, server_settings={"plan_cache_mode": "force_generic_plan"}
    )
    await connection.execute(_FILL)
    for number, (sql, arguments) in enumerate([*((one, 2) for one in STATEMENTS), (LANES, 1)]):
        await connection.execute(f"prepare it{number} as {sql}")
        given = ", ".join(["'l1'", "'5'"][-arguments:])
        rows = await connection.fetch(f"explain execute it{number}({given})")
        plan = "\n".join(row[0] for row in rows)
        assert "Index" in plan
        assert "Seq Scan" not in plan, plan
    await connection.close()
