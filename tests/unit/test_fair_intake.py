"""The intake of a fair lane: who starts next, what is set aside, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from acklast.config.fair import parse_fair_by
from acklast.fair_intake import FairIntake
from acklast.pacing.lanes import LanePacing
from acklast.pacing.sieve import Sieve
from acklast.pacing.slots import Draining, Slots
from acklast.pacing.turn import Turns
from acklast.settle import Delivery
from acklast_topology.contract import RawMessage
from harness.virtual import turns, virtual

ROOM, QUEUES = 20, 3


def job(run: str, number: int, priority: int | None = None, **headers: Any) -> Delivery:
    raw = RawMessage(b"{}", headers={"run": run, **headers}, message_id=f"{run}-{number}", priority=priority)
    return Delivery(raw, number, cast("Any", None))


class Works:
    """A lane with its fair queues: what is set aside lies there until it is fetched."""

    def __init__(self, count: int, room: int = ROOM) -> None:
        self.pacing = LanePacing(Slots(count))
        self.queues: dict[int, deque[Delivery]] = {number: deque() for number in range(1, QUEUES + 1)}
        sieve, by = Sieve(room, QUEUES), Turns("lane", 1.0, parse_fair_by("run"))
        self.intake = FairIntake(self.pacing.slots, self._start, self._aside, by, sieve)
        self.started: list[str] = []
        self.sent_home: list[str] = []
        self.running: list[asyncio.Event] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def _aside(self, delivery: Delivery, key: str, queue: int) -> None:
        assert key == delivery.raw.message_id
        self.queues[queue].append(delivery)

    def fetch(self, queue: int) -> bool:
        """Deliver the first that lies in a fair queue."""
        if self.queues[queue]:
            self.intake.take_from(queue, self.queues[queue].popleft())
            return True
        return False

    def _start(self, delivery: Delivery) -> None:
        self.tasks.add(asyncio.create_task(self._run(delivery)))

    async def _run(self, delivery: Delivery) -> None:
        self.intake.begun()
        key = str(delivery.raw.message_id)
        try:
            if not delivery.raw.message_id:
                self.started.append("malformed")
                return
            with await self.pacing.enter(delivery.turn):
                self.started.append(key)
                self.running.append(working := asyncio.Event())
                await working.wait()
        except Draining:
            self.sent_home.append(key)
        finally:
            self.intake.go_on()

    async def end(self, count: int = 1) -> None:
        """Let the oldest of those who work end."""
        for _ in range(count):
            self.running.pop(0).set()
            await turns()

    async def finish(self) -> None:
        """Let all end who are there, and fetch what lies aside."""
        while self.running or any(self.queues.values()):
            for queue in self.queues:
                self.fetch(queue)
            await turns()
            if self.running:
                await self.end()
        await asyncio.gather(*self.tasks)

    @property
    def runs(self) -> list[str]:
        return [key.split("-")[0] for key in self.started]


async def test_a_run_of_few_shares_from_its_first_job_on() -> None:
    works = Works(1)
    for number in range(1000):
        works.intake.take(job("big", number))
    for number in range(5):
        works.intake.take(job("few", number))
    assert sum(map(len, works.queues.values())) == 1000 - 1 - ROOM // 2
    await turns()
    await works.end(10)
    assert Counter(works.runs[1:]) == {"big": 5, "few": 5}
    assert [key for key in works.started if key.startswith("few")] == [f"few-{number}" for number in range(5)]
    await works.finish()
    big = [key for key in works.started if key.startswith("big")]
    assert big == [f"big-{number}" for number in range(1000)]


async def test_high_priorities_start_more_often_and_low_ones_start() -> None:
    works = Works(1, room=1000)
    works.intake.take(job("first", 0))
    for number in range(100):
        for priority in (0, 9):
            works.intake.take(job(f"p{priority}", number, priority))
    await turns()
    await works.end(33)
    assert Counter(works.runs[1:]) == {"p9": 30, "p0": 3}
    await works.finish()


async def test_what_waits_is_recalled_by_its_queue_the_oldest_first() -> None:
    works = Works(1)
    works.intake.take(job("a", 0))
    await turns()
    for number in range(1, 5):
        works.intake.take(job("ab"[number % 2], number))
    take, recall = works.intake.inlet(2)
    take(job("c", 5))
    take(job("a", 6))
    assert [one.tag for one in works.intake.recall(math.inf)] == [1, 2, 3, 4]
    assert [one.tag for one in recall(-math.inf)] == []
    assert [one.tag for one in recall(math.inf)] == [5, 6]
    assert len(works.intake) == 0
    # Their room is free again.
    for number in range(ROOM):
        works.intake.take(job("d", number))
    assert len(works.intake) == ROOM // 2
    await works.finish()


async def test_a_message_without_a_key_is_seen_to_and_not_sent_on() -> None:
    works = Works(1)
    for number in range(50):
        works.intake.take(job("big", number))
    works.intake.take(Delivery(RawMessage(b"", headers={"run": "big"}), 99, cast("Any", None)))
    await turns()
    assert "malformed" in works.started
    await works.finish()


async def test_closing_the_lane_hands_on_all_who_wait_and_sets_nothing_aside() -> None:
    works = Works(1)
    works.intake.take(job("a", 0))
    await turns()
    for number in range(1, 5):
        works.intake.take(job("a", number))
    works.pacing.close()
    for number in range(5, 50):
        works.intake.take(job("a", number))
    await turns()
    assert Counter(works.sent_home) == Counter(f"a-{number}" for number in range(1, 50))
    assert not any(works.queues.values())
    await works.finish()


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["take", "fetch", "end", "recall"]), st.integers(0, 5)), max_size=120),
)
@virtual
async def test_every_delivery_starts_once_and_each_run_in_its_order(
    count: int, acts: list[tuple[str, int]]
) -> None:
    works, come, recalled = Works(count, room=10), Counter[str](), 0
    for act, which in acts:
        match act:
            case "take":
                for _ in range(which * 3):
                    run = "abcdef"[which]
                    works.intake.take(job(run, come[run]))
                    come[run] += 1
            case "fetch":
                works.fetch(1 + which % QUEUES)
            case "end" if works.running:
                await works.end()
            case "recall" if which == 0:
                # The broker delivers them again, in their order.
                for delivery in works.intake.recall(math.inf):
                    recalled += 1
                    works.intake.take(delivery)
        await turns(1)
    await works.finish()
    assert Counter(works.runs) == come
    assert len(set(works.started)) == come.total()
    if not recalled:
        for run in come:
            numbers = [int(key.split("-")[1]) for key in works.started if key.startswith(run)]
            assert numbers == sorted(numbers)
    assert len(works.intake) == works.pacing.slots.held == 0
