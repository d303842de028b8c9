"""Plays one case of the crash matrix with real processes, and tells what it came to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from acklast.ledger.api import JobView, RunView
from crash.matrix import Case
from harness.daemon import Fault
from harness.effects import Noted
from harness.site import Site, scripted, site

KEY = "job-1"


@dataclass(frozen=True, slots=True)
class Story:
    """What was there when the second daemon had drained."""

    calls: list[Noted]
    effects: list[Noted]
    job: JobView
    run: RunView
    ready: dict[str, int]
    exit: int
    """Of the second daemon's drain."""


async def play(case: Case, directory: Path, broker_url: str, dsn: str) -> Story:
    """Publish one job, let the daemon die at the case's point, start its successor, wait for the end.

    Raises:
        AssertionError: the daemon did not die exactly there, or the job does not come to an end.
    """
    async with site(directory, broker_url, dsn, **case.settings) as place:
        await _publish(place, case)
        with place.daemon(fault=_fault(case)) as first:
            await first.dies_at_fault()
        with place.daemon(case.successor) as second:
            # Not before it listens to signals: after the last points nothing is left for it to do.
            await second.ready()
            await place.quiet()
            code = await second.drained()
        return await _told(place, code)


async def play_undisturbed(case: Case, directory: Path, broker_url: str, dsn: str) -> Story:
    """Play a case whose point the job never passes: the armed daemon lives to the end.

    Raises:
        AssertionError: it died, or the job does not come to an end.
    """
    async with site(directory, broker_url, dsn, **case.settings) as place:
        await _publish(place, case)
        with place.daemon(fault=_fault(case)) as only:
            await place.quiet()
            assert not only.fired(), f"{case} dies after all: it belongs into the matrix"
            # Nor could a case of the matrix pass without its crash: the harness would have failed it.
            with pytest.raises(AssertionError, match="still not so"):
                await only.dies_at_fault(timeout_s=0.1)
            code = await only.drained()
            with pytest.raises(AssertionError, match="not by SIGKILL"):
                await only.dies_at_fault()
        return await _told(place, code)


def _fault(case: Case) -> Fault:
    return Fault(case.point, case.of().pass_)


async def _publish(place: Site, case: Case) -> None:
    job = scripted(KEY, *case.of().steps)
    await place.promise([job])
    await place.publish(job)


async def _told(place: Site, code: int) -> Story:
    return Story(
        calls=place.log.calls(),
        effects=place.log.effects(),
        job=await place.job(KEY),
        run=await place.run(),
        ready=await place.ready(),
        exit=code,
    )
