"""Every fault at every step: the schedules that a scenario is swept through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from acklast.testing.stage import Heir
from simulation.scenario import Scenario
from simulation.schedule import ALL_WELL, CRASHES, Blow, Fault, Schedule
from simulation.world import World, play

_AT_RENEWALS: Final = (Fault.CRASH_AFTER, Fault.FAIL_BEFORE, Fault.FAIL_AFTER)
"""A renewal changes no job: what happens around one happens around the steps beside it too."""


def blows(faults: Iterable[Fault]) -> Iterator[Blow]:
    """Each fault, and each heir who can make a difference.

    Who follows a drain finds the session closed either way. What a crash before a step leaves to a restart is
    what a crash after the step before it leaves; another instance may get it nearer to the lease's end.
    """
    for fault in faults:
        if fault is not Fault.CRASH_BEFORE:
            yield Blow(fault, Heir.SAME)
        if fault in CRASHES:
            yield Blow(fault, Heir.OTHER)


def singles(scenario: Scenario, faults: Iterable[Fault] = tuple(Fault)) -> Iterator[Schedule]:
    """One fault, at each step that the scenario takes when all is well."""
    trail = play(scenario, ALL_WELL).trail
    for blow in blows(faults):
        for step, name in enumerate(trail):
            if blow.fault in _AT_RENEWALS or not name.endswith(": renew"):
                yield {step: blow}


def pairs(scenario: Scenario, faults: Iterable[Fault]) -> Iterator[Schedule]:
    """Two faults: after each single one, another at each step that follows it."""
    faults = tuple(faults)
    for single in singles(scenario, faults):
        [(first, _)] = single.items()
        steps = len(play(scenario, single).trail)
        for blow in blows(faults):
            for step in range(first + 1, steps):
                yield {**single, step: blow}


def ended_well(world: World) -> None:
    """Each job ended where it may."""
    for post in world.scenario.posts:
        state = world.account.state(post.key)
        assert state is None or state in post.ends, f"{post.key} ended {state}:\n{world.told()}"
