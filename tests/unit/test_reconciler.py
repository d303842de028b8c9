"""Where a missing job is sought, and when sending it again is given up."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from aiormq import spec

from acklast.custody import kept_raw
from acklast.ledger.api import Kept, State
from acklast.ledger.missing import Overdue
from acklast.reconciler import Again, queues_of
from acklast_topology.message import RawMessage
from acklast_topology.names import Names
from acklast_topology.publish import Sent, Status
from harness.configs import changed, read

NAMES = Names()


def test_a_job_is_sought_wherever_it_may_be(tmp_path: Path) -> None:
    fair = changed("concurrency = 3", 'fair_by = "run"')
    found = queues_of(read(tmp_path, fair))
    work, dead = NAMES.work("cleanup"), NAMES.dead("cleanup")
    # In what stands in for a queue that is replaced, and in what the broker set aside and nobody has filed.
    assert set(found["cleanup"]) == {work, dead, NAMES.moving(work), NAMES.moving(dead)}
    assert {NAMES.fair("rent-reminders", 8), NAMES.moving(NAMES.fair("rent-reminders", 8))} <= set(
        found["rent-reminders"]
    )


class Keeper:
    """Has a message of every job."""

    taken = 0

    async def take(self, job: Overdue) -> Kept | None:
        self.taken += 1
        return kept_raw(RawMessage(b"{}"), job.key)


def job(number: int) -> Overdue:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return Overdue("rent", f"job-{number}", State.QUEUED, 0, None, None, moment, kept=True)


async def fates(*answers: Status) -> tuple[list[Status | None], int]:
    """What became of ten jobs whose messages are answered like this, the last answer again and again."""
    keeper, left = Keeper(), list(answers)

    async def send(exchange: str, key: str, body: bytes, properties: spec.Basic.Properties) -> Sent:
        return Sent(left.pop(0) if len(left) > 1 else left[0], "")

    again = Again(keeper, NAMES, send)  # type: ignore[arg-type]  # all that it asks of a search
    return [await again(job(number)) for number in range(10)], keeper.taken


async def test_a_broker_that_takes_nothing_in_is_not_asked_for_each_job() -> None:
    assert await fates(Status.UNKNOWN) == ([Status.UNKNOWN] * 3 + [None] * 7, 3)


async def test_one_message_without_an_answer_stops_nothing() -> None:
    sent, taken = await fates(Status.UNKNOWN, Status.UNKNOWN, Status.CONFIRMED)
    assert sent == [Status.UNKNOWN] * 2 + [Status.CONFIRMED] * 8
    assert taken == 10
