"""What ``acklast why`` looks at: the ledger, the queues, and these again where a message seems to be lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Final

from acklast.cli.bar import bar
from acklast.cli.lane_target import operations_of, require
from acklast.cli.lane_view import view_of
from acklast.cli.queues import look, messages_in, ready_in
from acklast.cli.servers import broker_of
from acklast.cli.why_absent import absent
from acklast.cli.why_job import answer
from acklast.cli.why_reason import Absent, Answer, Case, Expected, Proof, Rules
from acklast.cli.why_turn import due_at, suspicious
from acklast.config import Config
from acklast.config.schedules import Schedule
from acklast.errors import AcklastError
from acklast.lane_queues import Queues
from acklast.ledger.backlog import Backlog, read_backlog
from acklast.ledger.controls import Target
from acklast.ledger.held import Holdings
from acklast.ledger.operate import Operations
from acklast.ledger.standing import Standing, read_standing
from acklast.ledger.whereabouts import JobFacts, Known, read_known, schedule_paused
from acklast.ledger.workers import WorkerView, read_workers
from acklast.outlook.cast import Prospect, outlook
from acklast.outlook.gather import facts_of
from acklast.reconciler import LOOKS, absences_of, queues_of
from acklast.reconciler import look as look_again

_FIRINGS: Final = 50
"""Firings of a schedule that are compared with a key."""


@dataclass(frozen=True, slots=True)
class Found:
    """The answers, and when they were true. ``blind``: why the broker could not be asked."""

    key: str
    at: datetime
    answers: tuple[Answer, ...]
    blind: str | None


@dataclass(frozen=True, slots=True)
class _World:
    """What holds for all lanes."""

    config: Config
    standing: Standing
    workers: tuple[WorkerView, ...]
    queues: Mapping[str, Queues]
    blind: str | None
    prospects: Mapping[str, Prospect]


async def find(config: Config, key: str, lane: str | None) -> Found:
    """Look for the key, and say why its jobs do not run.

    Raises:
        Refused: there is no such lane.
        LedgerUnavailable: the ledger does not answer.
    """
    async with operations_of(config) as operations:
        known = await read_known(operations, key)
        mine = _mine(known, lane)
        if lane is not None and not mine:
            await require(config, operations, Target.LANE, lane)
        lanes = {facts.view.lane for facts in mine} or ({lane} if lane else {*config.lanes})
        standing = await read_standing(operations)
        workers = tuple(await read_workers(operations, ended=False))
        queues, blind = await look(config, sorted(lanes))
        prospects = prospects_of(config, await read_backlog(operations), standing, queues)
        world = _World(config, standing, workers, queues, blind, prospects)
        if not mine:
            answers = [absent(await _absent(operations, world, known, lane))]
        else:
            cases = [_case(world, known, facts) for facts in mine]
            answers = [answer(await _proven(operations, config, case)) for case in cases]
        return Found(key, known.now, tuple(answers), blind)


def prospects_of(
    config: Config, backlog: Backlog, standing: Standing, queues: Mapping[str, Queues]
) -> dict[str, Prospect]:
    """What is to be expected of each lane, as ``acklast forecast`` has it: with what only the broker knows
    of, since that may be before the job. Pure.
    """
    expected = outlook(facts_of(config, backlog, standing, messages_in(queues)))
    return {one.lane: one for one in expected.lanes}


def _mine(known: Known, lane: str | None) -> list[JobFacts]:
    return [facts for facts in known.jobs if lane in (None, facts.view.lane)]


def _case(world: _World, known: Known, facts: JobFacts) -> Case:
    lane = facts.view.lane
    settings = world.config.lanes.get(lane)
    rules = None
    if settings is not None:
        rules = Rules(settings.max_attempts, settings.on_unknown.value, settings.fair_by is not None)
    prospect = world.prospects.get(lane)
    return Case(
        per_s=prospect.per_s if prospect else None,
        holds=prospect.binding if prospect else None,
        now=known.now,
        facts=facts,
        lane=view_of(world.config, world.standing, lane, world.queues[lane]),
        rules=rules,
        promises=tuple(one for one in known.promises if one.lane == lane),
        strays=tuple(one for one in known.strays if one.lane == lane),
        oldest_due=known.oldest_due,
        workers=tuple(one for one in world.workers if lane in one.lanes),
        blind=world.blind,
    )


# --- lost? ----------------------------------------------------------------------------------------------


async def _proven(operations: Operations, config: Config, case: Case) -> Case:
    """The case, after a longer look at its lane's queues where its message seems to be lost."""
    lane, since = case.facts.view.lane, due_at(case)
    if not suspicious(case) or since is None or lane not in config.lanes:
        return case
    absence = absences_of(config)[lane]
    try:
        async with broker_of(config) as connection:
            with bar(LOOKS, "look at the queues") as progress:
                looks = look_again(Holdings(operations), connection, queues_of(config), {lane: absence})
                async with aclosing(looks):
                    async for number in looks:
                        progress.at(number, "")
    except AcklastError as error:
        return replace(case, blind=error.what)
    known = await read_known(operations, case.facts.view.key)
    again = next((one for one in known.jobs if one.view.lane == lane), case.facts)
    if (again.view.fence, again.view.state) != (case.facts.view.fence, case.facts.view.state):
        return replace(case, now=known.now, facts=again)
    return replace(case, now=known.now, facts=again, proof=Proof(looked=True, absent=absence.covers(since)))


# --- no job ---------------------------------------------------------------------------------------------


async def _absent(operations: Operations, world: _World, known: Known, lane: str | None) -> Absent:
    expected = []
    for one in _expected(world.config, known, lane):
        by, why = await schedule_paused(operations, one.schedule) or (None, None)
        expected.append(replace(one, paused_by=by, paused_why=why))
    ready: dict[str, int | None] = {}
    for name, queues in world.queues.items():
        view = view_of(world.config, world.standing, name, queues)
        ready[name] = None if queues.ready is None else queues.ready + view.held
    unfiled = None if world.blind else await ready_in(world.config, world.config.names.unrouted)
    living = sum(one.lease_left_s > 0 for one in world.workers)
    return Absent(known, lane, ready, unfiled, tuple(expected), living, world.blind)


def _expected(config: Config, known: Known, lane: str | None) -> Iterator[Expected]:
    """The firings to come whose run is in the key, by this configuration."""
    for name, schedule in config.schedules.items():
        lanes = config.fan_outs.get(schedule.lane, (schedule.lane,))
        if not schedule.enabled or (lane is not None and lane not in lanes):
            continue
        yield from islice(_firings(name, schedule, known), 1)


def _firings(name: str, schedule: Schedule, known: Known) -> Iterator[Expected]:
    for at in islice(schedule.when().after(known.now), _FIRINGS):
        if (run := schedule.run_of(name, at)) in known.key:
            yield Expected(name, run, at)
