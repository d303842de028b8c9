"""The book of budgets in Postgres: what many daemons do at once never comes to more than the quota."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from acklast.ledger.api import Session
from acklast.ledger.budgets import Account, Heard, Holding, PostgresBook, heard_of
from acklast.ledger.connect import Address
from acklast.pacing.plan import Mine, plan
from harness import eventually
from ledger.worlds import PostgresWorld, start

pytestmark = pytest.mark.ledger
QUOTA, PERIOD_S, HOT_S = 20, 60.0, 60.25


class Books:
    """The books of several daemons, and what each has heard."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.made: list[PostgresBook] = []
        self.heard: list[list[Heard]] = []
        self.lost = 0

    async def new(self) -> PostgresBook:
        heard: list[Heard] = []
        book = PostgresBook(Address.of(self._dsn), heard.append, self._lose)
        self.made.append(book)
        self.heard.append(heard)
        await book.open("api", QUOTA, PERIOD_S)
        return book

    def _lose(self) -> None:
        self.lost += 1


@pytest.fixture
async def books(postgres: PostgresWorld, common_dsn: str) -> AsyncIterator[Books]:
    await postgres.sql("truncate acklast.budgets, acklast.permits")
    made = Books(common_dsn)
    yield made
    for book in made.made:
        await book.close()


def holding(session: Session, held: int, needs: int = 0) -> Holding:
    return Holding(session.id, held, needs, fresh=False, quota=QUOTA, period_s=PERIOD_S, hot_s=HOT_S)


async def put(
    book: PostgresBook, account: Account, mine: Holding, gone: tuple[int, ...] = (), *, tell: bool = False
) -> bool:
    return await book.write(account, mine, gone, quota=QUOTA, period_s=PERIOD_S, tell=tell)


async def test_what_is_written_is_read(books: Books, postgres: PostgresWorld) -> None:
    book, session = await books.new(), await start(postgres.ledger)
    first = await book.read("api", session.id)
    assert (first.live, first.holdings, first.paused_s) == (True, (), 0.0)
    assert await put(book, first, holding(session, 7, 9))
    second = await book.read("api", session.id)
    assert second.version == first.version + 1
    assert second.holdings == (holding(session, 7, 9),)


async def test_who_read_before_another_wrote_writes_nothing(books: Books, postgres: PostgresWorld) -> None:
    book, other = await books.new(), await books.new()
    one, two = await start(postgres.ledger, "one"), await start(postgres.ledger, "two")
    early = await book.read("api", one.id)
    assert await put(other, await other.read("api", two.id), holding(two, 20))
    assert not await put(book, early, holding(one, 20))
    assert [seen.held for seen in (await book.read("api", one.id)).holdings] == [20]


async def test_a_statement_that_arrives_a_second_time_does_nothing(
    books: Books, postgres: PostgresWorld
) -> None:
    book, session = await books.new(), await start(postgres.ledger)
    account = await book.read("api", session.id)
    assert await put(book, account, holding(session, 5))
    assert await put(book, await book.read("api", session.id), holding(session, 9))
    assert not await put(book, account, holding(session, 5))
    assert (await book.read("api", session.id)).holdings[0].held == 9


async def test_a_session_that_has_ended_writes_nothing(books: Books, postgres: PostgresWorld) -> None:
    book, session = await books.new(), await start(postgres.ledger)
    account = await book.read("api", session.id)
    await postgres.run_out(session)
    assert not await put(book, account, holding(session, 5))
    assert not (await book.read("api", session.id)).live


async def test_permits_of_the_dead_are_hot_for_a_period_after_the_end(
    books: Books, postgres: PostgresWorld
) -> None:
    book = await books.new()
    dead, alive = await start(postgres.ledger, "dead"), await start(postgres.ledger, "alive")
    assert await put(book, await book.read("api", dead.id), holding(dead, 20))
    await postgres.run_out(dead)
    account = await book.read("api", alive.id)
    (seen,) = account.holdings
    assert not seen.live
    assert not seen.proved, "a lease that ran out proves nothing where the clock may have been set"
    assert HOT_S - 5 < seen.hot_left_s <= HOT_S
    await postgres.sql(
        "update acklast.workers set lease_until = lease_until - interval '61 s' where id = $1", dead.id
    )
    account = await book.read("api", alive.id)
    assert account.holdings[0].hot_left_s <= 0
    assert await put(book, account, holding(alive, 20), (dead.id,))
    assert [seen.session for seen in (await book.read("api", alive.id)).holdings] == [alive.id]
    assert not await postgres.ledger.renew(dead), "whose permits were taken never lives again"


async def test_nobody_takes_the_permits_of_the_living(books: Books, postgres: PostgresWorld) -> None:
    book = await books.new()
    one, two = await start(postgres.ledger, "one"), await start(postgres.ledger, "two")
    assert await put(book, await book.read("api", one.id), holding(one, 20))
    account = await book.read("api", two.id)
    assert not await put(book, account, holding(two, 20), (one.id,))
    assert [seen.held for seen in (await book.read("api", two.id)).holdings] == [20]


async def test_a_restarted_instance_finds_its_predecessors_permits_hot(
    books: Books, postgres: PostgresWorld
) -> None:
    book, first = await books.new(), await start(postgres.ledger, "one")
    assert await put(book, await book.read("api", first.id), holding(first, 20))
    second = await start(postgres.ledger, "one")
    account = await book.read("api", second.id)
    assert account.holdings[0].proved
    mine = Mine(second.id, None, 0, 0, 0, 50, 50, fresh=False, quota=QUOTA, period_s=PERIOD_S)
    planned = plan(account, mine)
    assert planned.take == 0
    assert planned.returns_s == pytest.approx(HOT_S, abs=5)
    # The same process that lost its session goes on with what it had.
    again = plan(account, replace(mine, former=first.id, held=20, busy=20))
    assert again.gone == (first.id,)
    assert await put(book, account, holding(second, 20), again.gone)


async def test_a_notice_reaches_every_daemon(books: Books, postgres: PostgresWorld) -> None:
    book, other = await books.new(), await books.new()
    session = await start(postgres.ledger)
    assert await put(book, await book.read("api", session.id), holding(session, 1), tell=True)
    await eventually(lambda: all(books.heard))
    assert books.heard == [[Heard("api", session.id)]] * 2
    await other.pause("api", 30, "rate_limited")
    await eventually(lambda: all(len(heard) == 2 for heard in books.heard))
    said = books.heard[0][1]
    assert said.paused_s == pytest.approx(30, abs=1)
    await book.pause("api", 10, "rate_limited")
    assert (await book.read("api", session.id)).paused_s == pytest.approx(30, abs=2)


async def test_a_lost_connection_is_told_and_listens_again(books: Books, postgres: PostgresWorld) -> None:
    book, other = await books.new(), await books.new()
    await postgres.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and query like '%acklast.budgets%'"
    )
    await eventually(lambda: books.lost == 2)
    await book.listen()
    await other.pause("api", 5, "rate_limited")
    await eventually(lambda: books.heard[0])


async def test_daemons_that_grab_at_the_same_time_never_hold_more_than_the_quota(
    books: Books, postgres: PostgresWorld
) -> None:
    sessions = [await start(postgres.ledger, f"i{number}") for number in range(6)]
    most = 0

    async def watch() -> None:
        nonlocal most
        rows = await postgres.sql("select coalesce(sum(held), 0) from acklast.permits")
        most = max(most, rows[0][0])

    async def grab(session: Session, seed: int) -> int:
        book, chance, held, moved = await books.new(), random.Random(seed), 0, 0
        for _ in range(40):
            account = await book.read("api", session.id)
            waiting = chance.choice([0, 0, 3, 30])
            mine = Mine(
                session.id,
                session.id,
                held,
                held // 2,
                waiting,
                1,
                1,
                fresh=False,
                quota=QUOTA,
                period_s=PERIOD_S,
            )
            planned = plan(account, mine)
            new = min(held, planned.keep) + planned.take
            if await put(book, account, holding(session, new, planned.needs), planned.gone, tell=True):
                moved += new != held
                held = new
            await watch()
        return moved

    moved = await asyncio.gather(*(grab(session, number) for number, session in enumerate(sessions)))
    assert 0 < most <= QUOTA
    assert min(moved) > 0


@pytest.mark.parametrize("payload", ["", "no json", "[]", "1", '{"session": 3}', "null"])
def test_what_is_no_notice_is_ignored(payload: str) -> None:
    assert heard_of(payload) is None
