"""Each scenario through each single fault at each of its steps, none left out."""

from __future__ import annotations

import pytest

from simulation.catalogue import CATALOGUE
from simulation.schedule import CRASHES
from simulation.sweep import ended_well, singles
from simulation.world import play


@pytest.mark.parametrize("name", CATALOGUE)
def test_one_fault_anywhere_breaks_no_promise(name: str) -> None:
    scenario = CATALOGUE[name]
    for schedule in singles(scenario):
        ended_well(play(scenario, schedule))


def test_with_a_reconcile_that_knows_no_crash_repeats_an_effect() -> None:
    scenario = CATALOGUE["reconcile: success"]
    for schedule in singles(scenario, CRASHES):
        world = play(scenario, schedule)
        assert world.account.effects("a") == 1


def test_an_effect_in_the_ledgers_own_database_is_never_repeated() -> None:
    scenario = CATALOGUE["success in one transaction"]
    for schedule in singles(scenario):
        world = play(scenario, schedule)
        assert world.account.effects("a") == 1


@pytest.mark.parametrize("name", CATALOGUE)
def test_when_all_is_well_each_job_has_its_effect_and_is_settled(name: str) -> None:
    scenario = CATALOGUE[name]
    world = play(scenario)
    ended_well(world)
    assert all(job.settled_at for job in world.ledger._jobs.values())
