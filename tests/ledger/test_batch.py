"""Group commit, without a database: who travels with whom, and who is told what when a flush fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from acklast.errors import LedgerUnavailable
from acklast.ledger import batch, notes
from acklast.ledger.api import Claimed, Fresh, Kept, Record, Recorded
from acklast.ledger.batch import LIMIT, Answer, Batch, Batcher, Item, again_after_s, linger_s
from acklast.ledger.changes import change_for
from acklast.ledger.connect import Unsent
from acklast.ledger.notes import Claims, Notes, ranges
from acklast.outcome import Bury, Complete
from harness import eventually
from ledger.worlds import LANE, a_claim, a_letter, a_record

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FRESH = Fresh(1, 1, 0, ambiguous=False, now=NOW)
GONE = LedgerUnavailable("gone", "wait")


class Store:
    """Stands in for Postgres: keeps the batches, answers as it is told, and only when it is let."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.open = asyncio.Event()
        self.open.set()
        self.flying = 0
        self.answer: Callable[[Item], Answer | None] = plain
        self.failures: list[Exception] = []

    async def send(self, sent: Batch) -> Mapping[int, Answer]:
        self.batches.append(sent)
        self.flying += 1
        assert self.flying == 1, "two flushes in flight"
        await self.open.wait()
        self.flying -= 1
        if self.failures:
            raise self.failures.pop(0)
        answers = {item.ticket: self.answer(item) for item in sent.items}
        return {ticket: answer for ticket, answer in answers.items() if answer is not None}

    @property
    def keys(self) -> list[list[str]]:
        return [[item.place[1] for item in sent.items] for sent in self.batches]

    def releases(self) -> list[Item]:
        return [
            item for sent in self.batches for item in sent.items if item.claim is None and item.record is None
        ]


def plain(item: Item) -> Answer:
    return FRESH if item.claim is not None else Recorded.RECORDED


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def batcher(store: Store) -> Batcher:
    return Batcher(store.send)


def claims(batcher: Batcher, *keys: str, session: int = 1) -> list[asyncio.Future[Claimed]]:
    return [asyncio.ensure_future(batcher.claim(session, a_claim(key))) for key in keys]


def a_burial(key: str, payload: bytes) -> Record:
    return replace(a_record(FRESH, Bury("refused"), key), letter=replace(a_letter(), payload=payload))


def a_complete(key: str) -> Record:
    return Record(LANE, key, 1, Complete(), "done", "", NOW, NOW)


def record(batcher: Batcher, key: str) -> asyncio.Future[Recorded]:
    told = a_complete(key)
    return batcher.record(1, told, change_for(told))


async def outcomes(tasks: list[asyncio.Future[Claimed]]) -> list[Claimed | BaseException]:
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_is_asked_for_at_once_travels_at_once_in_key_order(batcher: Batcher, store: Store) -> None:
    tasks = claims(batcher, "c", "a", "b")
    told = await asyncio.gather(record(batcher, "d"), *tasks)
    assert store.keys == [["a", "b", "c", "d"]]
    assert told == [Recorded.RECORDED, FRESH, FRESH, FRESH]


async def test_each_flush_is_told_with_its_size_and_whether_it_was_answered(store: Store) -> None:
    told: list[tuple[int, bool]] = []

    def tell(size: int, seconds: float, ok: bool) -> None:
        assert seconds >= 0
        told.append((size, ok))

    batcher = Batcher(store.send, tell)
    await asyncio.gather(*claims(batcher, "a", "b"))
    store.failures = [LedgerUnavailable("away", "Wait."), LedgerUnavailable("away", "Wait.")]
    await outcomes(claims(batcher, "c"))
    assert told[:3] == [(2, True), (1, False), (1, False)]


async def test_what_comes_during_a_flush_goes_with_the_next(batcher: Batcher, store: Store) -> None:
    store.open.clear()
    first = claims(batcher, "a")
    await eventually(lambda: store.batches)
    rest = claims(batcher, *(f"k{n}" for n in range(20)))
    await asyncio.sleep(0)  # lets the tasks ask
    assert len(store.batches) == 1
    store.open.set()
    await asyncio.gather(*first, *rest)
    assert [len(keys) for keys in store.keys] == [1, 20]


async def test_a_flush_is_bounded(batcher: Batcher, store: Store) -> None:
    await asyncio.gather(*claims(batcher, *(f"k{n}" for n in range(LIMIT * 2 + 1))))
    assert [len(keys) for keys in store.keys] == [LIMIT, LIMIT, 1]


async def test_one_job_is_in_one_flush_once_and_in_the_order_of_asking(
    batcher: Batcher, store: Store
) -> None:
    store.answer = lambda item: Fresh(item.ticket, 1, 0, ambiguous=False, now=NOW)
    tasks = claims(batcher, "a", "b", "a", "a")
    a1, _, a2, a3 = await asyncio.gather(*tasks)
    assert store.keys == [["a", "b"], ["a"], ["a"]]
    assert isinstance(a1, Fresh)
    assert isinstance(a2, Fresh)
    assert isinstance(a3, Fresh)
    assert a1.fence < a2.fence < a3.fence


async def test_a_flush_belongs_to_one_session(batcher: Batcher, store: Store) -> None:
    tasks = [*claims(batcher, "a", session=1), *claims(batcher, "b", session=2), *claims(batcher, "c")]
    await asyncio.gather(*tasks)
    assert store.keys == [["a", "c"], ["b"]]
    assert [{item.session for item in sent.items} for sent in store.batches] == [{1}, {2}]


async def test_an_item_without_an_answer_is_asked_again(batcher: Batcher, store: Store) -> None:
    store.answer = lambda item: None if item.place[1] == "a" and item.asked < 3 else plain(item)
    assert await asyncio.gather(*claims(batcher, "a", "b")) == [FRESH, FRESH]
    assert store.keys == [["a", "b"], ["a"], ["a"], ["a"]]


async def test_a_job_that_stays_locked_is_an_outage_for_its_caller_alone(
    batcher: Batcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "ASK_AGAIN_S", 0.01)
    store.answer = lambda item: None if item.place[1] == "a" else plain(item)
    locked, fine = await outcomes(claims(batcher, "a", "b"))
    assert isinstance(locked, LedgerUnavailable)
    assert f"{LANE}/a" in locked.what
    assert fine == FRESH


async def test_one_bad_item_fails_alone(
    batcher: Batcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(item: Item) -> Answer:
        if item.place[1] == "bad":
            raise ValueError("bad")
        return plain(item)

    store.answer = refuse
    monkeypatch.setattr(batch, "NOTES", 1)
    batcher.note((LANE, "noted"), 1)
    good, bad, fine = await outcomes(claims(batcher, "a", "bad", "c"))
    assert (good, fine) == (FRESH, FRESH)
    assert isinstance(bad, ValueError)
    assert store.keys == [["a", "bad", "c"], ["a"], ["bad"], ["c"], []]
    assert store.batches[-1].notes.fences == {(LANE, "noted"): 1}


async def test_a_lost_connection_is_tried_again_once(batcher: Batcher, store: Store) -> None:
    store.failures = [GONE]
    assert await asyncio.gather(*claims(batcher, "a", "b")) == [FRESH, FRESH]
    assert store.keys == [["a", "b"], ["a", "b"]]
    tickets = [[item.ticket for item in sent.items] for sent in store.batches]
    assert tickets[0] == tickets[1]


async def test_an_outage_is_told_to_all_and_what_may_have_been_claimed_is_given_back(
    batcher: Batcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LONELY_S", 0.01)
    store.failures = [GONE, GONE]
    told = await outcomes(claims(batcher, "a", "b"))
    assert [type(one) for one in told] == [LedgerUnavailable] * 2
    await eventually(lambda: len(store.batches) == 3)
    claimed = {item.ticket for item in store.batches[0].items}
    assert {item.ticket for item in store.releases()} == claimed


async def test_a_release_survives_a_longer_outage(
    batcher: Batcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LONELY_S", 0.001)
    store.failures = [GONE] * 7
    await outcomes(claims(batcher, "a"))
    await eventually(lambda: not store.failures and len(store.batches) == 8)
    assert [item.place for item in store.batches[-1].items] == [(LANE, "a")]
    assert store.batches[-1].items[0].claim is None


async def test_a_release_goes_before_the_next_claim_of_its_job(batcher: Batcher, store: Store) -> None:
    store.failures = [GONE, GONE]
    await outcomes(claims(batcher, "a"))
    assert await asyncio.gather(*claims(batcher, "a", "b")) == [FRESH, FRESH]
    assert store.keys[2:] == [["a", "b"], ["a"]]
    assert store.batches[2].items[0].claim is None


async def test_what_was_never_sent_needs_no_release(batcher: Batcher, store: Store) -> None:
    store.failures = [Unsent("refused", "wait"), Unsent("refused", "wait")]
    await outcomes(claims(batcher, "a"))
    await asyncio.gather(*claims(batcher, "b"))
    assert store.releases() == []


async def test_a_claim_whose_caller_left_before_the_flush_is_not_made(batcher: Batcher, store: Store) -> None:
    store.open.clear()
    first = claims(batcher, "a")
    await eventually(lambda: store.batches)
    leaver, stayer = claims(batcher, "b", "c")
    await asyncio.sleep(0)  # lets the tasks ask
    leaver.cancel()
    store.open.set()
    await asyncio.gather(*first, stayer)
    assert store.keys == [["a"], ["c"]]


async def test_a_claim_whose_caller_left_during_the_flush_is_given_back(
    batcher: Batcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LONELY_S", 0.01)
    store.open.clear()
    (leaver,) = claims(batcher, "a")
    await eventually(lambda: store.batches)
    leaver.cancel()
    store.open.set()
    await eventually(lambda: len(store.batches) == 2)
    assert [item.ticket for item in store.releases()] == [store.batches[0].items[0].ticket]


async def test_a_verdict_is_recorded_even_if_its_caller_leaves(batcher: Batcher, store: Store) -> None:
    store.open.clear()
    first = claims(batcher, "a")
    await eventually(lambda: store.batches)
    leaver = asyncio.ensure_future(record(batcher, "b"))
    await asyncio.sleep(0)  # lets the tasks ask
    leaver.cancel()
    store.open.set()
    await asyncio.gather(*first)
    await eventually(lambda: store.keys == [["a"], ["b"]])


async def test_notes_ride_along_once_there_are_enough(
    batcher: Batcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "NOTES", 2)
    batcher.note((LANE, "a"), 1)
    await asyncio.gather(*claims(batcher, "b"))
    assert store.batches[-1].notes.fences == {}
    batcher.note((LANE, "x"), 1)
    await asyncio.gather(*claims(batcher, "a"))
    assert store.batches[-1].notes.fences == {(LANE, "x"): 1}  # not of a job that moves in the same flush


async def test_few_notes_go_soon_though_the_flushes_never_end(
    batcher: Batcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LONELY_S", 0.01)
    batcher.note((LANE, "x"), 1)

    async def flood() -> None:
        while not any(sent.notes for sent in store.batches):
            await asyncio.gather(*claims(batcher, "a"), *claims(batcher, "b"))

    async with asyncio.timeout(30):
        await asyncio.gather(flood(), flood())


async def test_what_this_process_claimed_is_noted_by_its_ticket(
    batcher: Batcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "NOTES", 3)
    await asyncio.gather(*claims(batcher, "a", "b"))
    await record(batcher, "a")
    first, second = (item.ticket for item in store.batches[0].items)
    assert second == first + 1  # consecutive, whatever is recorded in between
    batcher.note((LANE, "a"), 1)
    batcher.note((LANE, "b"), 2)  # another fence than that of the claim
    batcher.note((LANE, "x"), 1)  # never claimed here
    await asyncio.gather(*claims(batcher, "c"))
    noted = store.batches[-1].notes
    assert (noted.session, noted.tickets) == (1, [first])
    assert noted.fences == {(LANE, "b"): 2, (LANE, "x"): 1}


async def test_tickets_of_another_session_are_not_mixed(batcher: Batcher, store: Store) -> None:
    await asyncio.gather(*claims(batcher, "a"), *claims(batcher, "b", session=2))
    for key in "ab":
        batcher.note((LANE, key), 1)
    await batcher.close()
    noted = store.batches[-1].notes
    assert (noted.session, len(noted.tickets)) == (1, 1)
    assert noted.fences == {(LANE, "b"): 1}


def test_tickets_become_ranges() -> None:
    assert ranges([]) == []
    assert ranges([5, 3, 4, 9, 7, 8, 1, 4]) == [(1, 1), (3, 5), (7, 9)]


def test_claims_that_are_never_settled_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "CLAIMS", 2)
    given, noted = Claims(), Notes()
    for n, key in enumerate("abc"):
        given.given((LANE, key), 1, 1, n)
    for key in "abc":
        given.settle((LANE, key), 1, noted)
    assert (noted.tickets, noted.fences) == ([1, 2], {(LANE, "a"): 1})


async def test_lonely_notes_go_by_themselves(
    batcher: Batcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LONELY_S", 0.01)
    batcher.note((LANE, "x"), 1)
    batcher.note((LANE, "x"), 2)
    await eventually(lambda: store.batches)
    assert store.batches[0].notes.fences == {(LANE, "x"): 2}


async def test_notes_survive_an_outage(batcher: Batcher, store: Store) -> None:
    store.failures = [GONE, GONE]
    batcher.note((LANE, "x"), 1)
    await outcomes(claims(batcher, "a"))
    await batcher.close()
    assert store.batches[-1].notes.fences == {(LANE, "x"): 1}


async def test_close_flushes_what_waits(batcher: Batcher, store: Store) -> None:
    store.open.clear()
    first = claims(batcher, "a")
    await eventually(lambda: store.batches)
    told = [asyncio.ensure_future(record(batcher, key)) for key in "bc"]
    await asyncio.sleep(0)  # lets the tasks ask
    batcher.note((LANE, "x"), 1)
    closing = asyncio.create_task(batcher.close())
    await asyncio.sleep(0)  # lets it begin
    store.open.set()
    await closing
    assert [one.result() for one in first] == [FRESH]
    assert [one.result() for one in told] == [Recorded.RECORDED] * 2
    assert store.batches[-1].notes
    with pytest.raises(LedgerUnavailable, match="closed"):
        await batcher.claim(1, a_claim("c"))


async def test_close_waits_no_longer_than_it_must(
    batcher: Batcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "CLOSE_S", 0.01)
    store.open.clear()
    flying = claims(batcher, "a")
    await eventually(lambda: store.batches)
    waiting = claims(batcher, "b")
    await asyncio.sleep(0)  # lets the tasks ask
    await batcher.close()
    assert [type(one) for one in await outcomes(flying + waiting)] == [LedgerUnavailable] * 2


def test_a_lone_job_never_lingers() -> None:
    assert linger_s(last=1, waiting=1) == 0
    assert linger_s(last=15, waiting=1) == 0
    assert linger_s(last=300, waiting=64) == 0
    assert linger_s(last=300, waiting=10) == batch.LINGER_S


def test_a_locked_job_is_asked_for_less_and_less_often() -> None:
    pauses = [again_after_s(asked) for asked in range(1, 12)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.005
    assert pauses[-1] == 0.25


async def test_large_payloads_go_few_at_a_time(
    store: Store, batcher: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LIMIT_BYTES", 100)
    burials = [a_burial(f"k{n}", b"x" * size) for n, size in enumerate((60, 60, 40, 500, 1, 30, 60))]
    told = [batcher.record(1, burial, change_for(burial)) for burial in burials]
    assert await asyncio.gather(*told) == [Recorded.RECORDED] * len(burials)
    assert store.keys == [["k0", "k2"], ["k1", "k4", "k5"], ["k3"], ["k6"]]


async def test_messages_to_be_kept_go_few_at_a_time_too(
    store: Store, batcher: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "LIMIT_BYTES", 100)
    asked = [batcher.claim(1, a_claim(f"k{n}", kept=Kept(b"", b"x" * 60))) for n in range(3)]
    await asyncio.gather(*asked)
    assert store.keys == [["k0"], ["k1"], ["k2"]]
