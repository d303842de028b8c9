"""SIGKILL between each pair of steps of a delivery's life, for every verdict.

The cases run several at a time, because most of each is waiting; each has a virtual host and a database of
its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeAlias

import pytest

from acklast import faults
from acklast.errors import Exit
from acklast.ledger.api import State
from crash.matrix import (
    CRASHES,
    NEVER_PASSED,
    ORDINARILY,
    OTHER_CRASHES,
    OTHER_NEVER_PASSED,
    OTHER_ORDINARILY,
    SCENARIOS,
    WINDOWS,
    Case,
    Window,
)
from crash.play import KEY, Story, play, play_undisturbed
from dev.stack import BrokerServer
from harness import Databases
from harness.broker import at_vhost

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

Play: TypeAlias = Callable[[Case, Path, str, str], Coroutine[Any, Any, Story]]
Played: TypeAlias = dict[Case, Future[Story]]

_AT_A_TIME = 4


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest,
    broker_server: BrokerServer,
    databases: Databases,
    migrated_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Played]:
    """The stories of the cases that this session has selected, under way."""

    # Made here: two threads that ask for the first directory of a session at once take it from each other.
    home = tmp_path_factory.mktemp("crash")

    def run(case: Case) -> Story:
        place = home / str(case)
        place.mkdir()
        how: Play = play if case.passed else play_undisturbed
        vhost = f"{migrated_template}_{token_hex(4)}"
        with _virtual_host(broker_server, vhost) as url:
            dsn = databases.create(migrated_template)
            try:
                return asyncio.run(how(case, place, url, dsn))
            finally:
                databases.drop(dsn)

    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="crash") as pool:
        yield {case: pool.submit(run, case) for case in _selected(request)}
        pool.shutdown(cancel_futures=True)


def _selected(request: pytest.FixtureRequest) -> Iterator[Case]:
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        if item.path == request.path and callspec is not None:
            case: Case = callspec.params["case"]
            yield case


@contextmanager
def _virtual_host(server: BrokerServer, name: str) -> Iterator[str]:
    server.management.create_vhost(name)
    try:
        yield at_vhost(server.url, name)
    finally:
        server.management.delete_vhost(name)


def _params(ordinary: Iterable[Case], other: Iterable[Case]) -> Iterator[Any]:
    for case in (*ordinary, *other):
        marks = () if case in ORDINARILY | OTHER_ORDINARILY else pytest.mark.soak
        yield pytest.param(case, id=str(case), marks=marks)


@pytest.mark.parametrize("case", [*_params(CRASHES, OTHER_CRASHES)])
def test_a_crash_loses_nothing_and_repeats_only_in_its_window(case: Case, played: Played) -> None:
    story = played[case].result()
    _assert_nothing_lost(story, case.of().state)
    _assert_called_as_expected(story, case)
    _assert_crash_is_on_record(story, case)
    reason = case.of().letters[case.window]
    assert [letter.reason for letter in story.job.letters] == ([reason] if reason else [])


@pytest.mark.parametrize("case", [*_params(NEVER_PASSED, OTHER_NEVER_PASSED)])
def test_a_point_is_left_out_only_where_the_job_never_passes_it(case: Case, played: Played) -> None:
    story = played[case].result()
    _assert_nothing_lost(story, case.of().state)


def test_every_point_has_its_window_and_every_point_is_crashed_at() -> None:
    assert set(WINDOWS) == set(faults.POINTS)
    assert {case.point for case in CRASHES} == set(faults.POINTS)


def test_what_runs_ordinarily_has_every_point_and_every_window_of_every_scenario() -> None:
    assert {case.point for case in ORDINARILY} == set(faults.POINTS)
    windows = {(case.scenario, case.window) for case in ORDINARILY}
    assert windows == {(scenario.name, window) for scenario in SCENARIOS for window in Window}


def test_what_runs_ordinarily_on_the_other_receiver_has_every_point_and_every_scenario() -> None:
    assert set(OTHER_CRASHES) >= OTHER_ORDINARILY
    assert sorted(case.point for case in OTHER_ORDINARILY) == sorted(faults.POINTS)
    assert {case.scenario for case in OTHER_ORDINARILY} == {scenario.name for scenario in SCENARIOS}


def _assert_nothing_lost(story: Story, state: State) -> None:
    """The job is where its story ends, nowhere else, and no queue holds a copy of it."""
    assert story.job.state is state
    assert dict(story.run.counts) == {state: 1}
    assert (story.run.manifest, story.run.balanced) == (1, True)
    assert story.ready == {}
    assert story.exit == Exit.OK


def _assert_called_as_expected(story: Story, case: Case) -> None:
    """No call and no effect beyond the window's, and the call after a lost verdict is told of it."""
    expected = case.of().expected[case.window]
    assert [call.ambiguous for call in story.calls] == list(expected.ambiguous)
    assert len(story.calls) == expected.calls
    assert len(story.effects) == expected.effects
    assert {noted.key for noted in (*story.calls, *story.effects)} <= {KEY}
    if case.window is not Window.CALLED:
        assert len(story.effects) <= 1, "a second effect outside the one window in which it may happen"
    assert all(effect.ambiguous for effect in story.effects[1:])


def _assert_crash_is_on_record(story: Story, case: Case) -> None:
    """The attempt that the crash took is in the ledger, where it had claimed the job and told no verdict."""
    crashed = [attempt for attempt in story.job.history if attempt.outcome == "crashed"]
    lost = case.window in (Window.CLAIMED, Window.CALLED)
    assert len(crashed) == (1 if lost else 0)
