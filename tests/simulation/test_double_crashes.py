"""Small scenarios through every pair of crashes: the second one strikes whoever came after the first."""

from __future__ import annotations

import pytest

from simulation.catalogue import CATALOGUE
from simulation.schedule import CRASHES, Fault
from simulation.sweep import ended_well, pairs
from simulation.world import play

SMALL = (
    "success in one transaction",
    "bury",
    "hold: success",
)
LONGER = (
    "retry",
    "reconcile: success",
    "published twice",
)


def test_no_two_crashes_break_a_promise() -> None:
    scenario = CATALOGUE["success"]
    for schedule in pairs(scenario, CRASHES):
        ended_well(play(scenario, schedule))


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.soak) for name in LONGER)])
def test_no_two_crashes_between_steps_break_a_promise(name: str) -> None:
    # After one step is before the next: one of the two finds every place between them.
    scenario = CATALOGUE[name]
    for schedule in pairs(scenario, (Fault.CRASH_AFTER,)):
        ended_well(play(scenario, schedule))
