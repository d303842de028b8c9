"""SIGKILL at any moment under load: every job is accounted for, and no effect repeats without its reason."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from acklast.errors import Exit
from acklast.ledger.api import JobView, State
from acklast_topology.publish import Job
from harness import Broker, eventually
from harness.effects import Noted
from harness.site import RUN, Site, scripted, site

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

JOBS = 300
KILLS = 4
CONCURRENCY = 8
SCRIPTS = (("done",), ("done",), ("transient", "done"), ("permanent",))
"""One of them for each job, in turn."""


def script_of(number: int) -> tuple[str, ...]:
    return SCRIPTS[number % len(SCRIPTS)]


def jobs() -> list[Job]:
    return [scripted(f"job-{number}", *script_of(number)) for number in range(JOBS)]


async def kill_at_random_moments(place: Site, chance: random.Random) -> None:
    """Kill the daemon each time that a random number of further calls have been made."""
    calls = 0
    for _ in range(KILLS):
        with place.daemon() as daemon:
            calls += chance.randint(5, JOBS // KILLS)
            await eventually(lambda: len(place.log.calls()) >= calls, 60, f"{calls} calls")  # noqa: B023
            daemon.signal(signal.SIGKILL)
            await daemon.ended()
        # Not "calls": the last of them may have been made between the look and the kill.
        calls = len(place.log.calls())


@pytest.mark.parametrize(
    ("seed", "receiver"),
    [
        (1, "bulk"),
        pytest.param(2, "bulk", marks=pytest.mark.soak),
        pytest.param(1, "library", marks=pytest.mark.soak),
        pytest.param(2, "library", marks=pytest.mark.soak),
    ],
)
async def test_every_job_is_accounted_for_and_effects_repeat_only_across_a_crash(
    seed: int, receiver: str, broker: Broker, ledger_dsn: str, tmp_path: Path
) -> None:
    lane: dict[str, Any] = {"concurrency": CONCURRENCY, "prefetch": 40}
    async with site(tmp_path, broker.url, ledger_dsn, receiver=receiver, **lane) as place:
        await place.promise(jobs())
        await place.publish(*jobs())
        await kill_at_random_moments(place, random.Random(seed))
        with place.daemon() as last:
            await last.ready()
            await place.quiet(60)
            assert await last.drained() == Exit.OK
        run = await place.run()
        assert dict(run.counts) == {State.DONE: 225, State.DEAD: 75}
        assert run.balanced
        assert await place.ready() == {}
        accounts = [await place.job(job.key) for job in jobs()]
        for number, account in enumerate(accounts):
            assert_one_effect(account, place.log.effects(account.key), script_of(number))
        crashed = Counter(attempt.outcome for account in accounts for attempt in account.history)["crashed"]
        assert crashed <= KILLS * CONCURRENCY


def assert_one_effect(account: JobView, effects: list[Noted], script: tuple[str, ...]) -> None:
    """One effect, or none where the job is dead; each further one has a crashed attempt that allows it."""
    assert account.run == RUN
    buried = script == ("permanent",)
    assert account.state is (State.DEAD if buried else State.DONE)
    assert len(account.letters) == (1 if buried else 0)
    crashed = sum(attempt.outcome == "crashed" for attempt in account.history)
    first, further = effects[:1], effects[1:]
    assert bool(first) is not buried
    assert len(further) <= crashed, f"{account.key}: {len(effects)} effects, {crashed} crashed attempts"
    assert all(effect.ambiguous for effect in further)
