"""What ``TestWorker`` shows in memory is what a real daemon does on a real broker and ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from acklast.errors import Exit
from acklast.ledger.api import JobView, State
from acklast.testing import Crash, TestWorker
from acklast_topology import Job
from harness import Broker
from harness.daemon import Fault
from harness.effects import EffectLog
from harness.scripted import DIRECTORY, LANE, app, log_in
from harness.site import Site, scripted, site

LANE_SETTINGS: Mapping[str, Any] = {
    "max_attempts": 3,
    "max_rate_limited": 3,
    "timeout_s": 2,  # for the one that never ends: the others must not reach it on a busy machine
    "backoff_base_s": 0.05,
    "backoff_cap_s": 0.05,
}
LIMITED = {"do": "rate_limited", "retry_after": 1}
JOBS = (
    scripted("done", "done"),
    scripted("recovers", "transient", "done"),
    scripted("used-up", "transient"),
    scripted("limited", LIMITED, "done"),
    scripted("limited-for-ever", LIMITED),
    scripted("refused", "permanent"),
    scripted("in-doubt", "unknown", "done"),
    scripted("times-out", {"do": "wait", "gate": "never"}, "done"),
    scripted("promises", {"do": "enqueue", "key": "promised", "then": ""}),
    scripted("promises-later", {"do": "enqueue", "key": "not-promised", "then": "not_now"}, "done"),
    scripted("nobodys", "done", type="nobody.v1"),
)


@dataclass(frozen=True, slots=True)
class Told:
    """What both have to agree on, of one job."""

    state: State
    attempts: int
    rate_limited: int
    ambiguous: bool
    reason: str | None
    result: Any
    history: Sequence[tuple[int, str, str]]
    letters: Sequence[tuple[str, int]]
    calls: Sequence[tuple[int, bool]]
    effects: int
    events: Sequence[tuple[str, str | None, int | None]]


def told(view: JobView, log: EffectLog, events: Sequence[Mapping[str, Any]]) -> Told:
    settled = [(one["disposition"], one.get("reason"), one.get("attempt")) for one in events]
    # How often a job is asked for that is not due yet depends on milliseconds.
    seen = [event for event, _ in groupby(settled) if event[0] not in ("not_due", "held")]
    return Told(
        view.state,
        view.attempts,
        view.rate_limited,
        view.ambiguous,
        view.reason,
        view.result,
        [(one.attempt, one.outcome, one.reason) for one in view.history],
        [(letter.reason, letter.attempts) for letter in view.letters],
        [(call.attempt, call.ambiguous) for call in log.calls(view.key)],
        len(log.effects(view.key)),
        seen,
    )


def in_memory(
    monkeypatch: pytest.MonkeyPatch, directory: Path, jobs: Sequence[Job], again: Sequence[Job], **lane: Any
) -> dict[str, Told]:
    """Play it in memory; ``fault`` is the point at which the daemon dies."""
    directory.mkdir()
    monkeypatch.setenv(DIRECTORY, str(directory))
    fault = lane.pop("fault", None)
    with TestWorker(app, lanes={LANE: {**LANE_SETTINGS, **lane}}) as worker:
        if fault is not None:
            worker.fault(LANE, Crash(fault))
        for batch in (jobs, again):
            for job in batch:
                worker.publish(LANE, job.payload, key=job.key, type=job.type, run=job.run)
            worker.run_until_idle()
        seen = {}
        for played in worker.jobs:
            events = [event.fields for event in played.events if event.name == "settled"]
            seen[played.key] = told(played.view, log_in(directory), events)
        return seen


async def for_real(
    place: Site, jobs: Sequence[Job], again: Sequence[Job], fault: str | None
) -> dict[str, Told]:
    """Play it with daemons on a broker and a ledger."""
    daemons = []
    await place.promise(jobs)
    await place.publish(*jobs)
    if fault is not None:
        with place.daemon(fault=Fault(fault)) as daemon:
            await daemon.dies_at_fault()
            daemons.append(daemon)
    with place.daemon() as daemon:
        daemons.append(daemon)
        await daemon.ready()
        await place.quiet()
        await place.publish(*again)
        await place.quiet()
        assert await daemon.drained() == Exit.OK
    lines = [line for one in daemons for line in one.said("job.settled")]
    keys = dict.fromkeys([*(job.key for job in jobs), *(line["key"] for line in lines)])
    return {
        key: told(await place.job(key), place.log, [line for line in lines if line["key"] == key])
        for key in keys
    }


async def agreed(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    broker: Broker,
    dsn: str,
    *,
    jobs: Sequence[Job],
    again: Sequence[Job] = (),
    fault: str | None = None,
    **lane: Any,
) -> dict[str, Told]:
    seen = in_memory(monkeypatch, tmp_path / "memory", jobs, again, fault=fault, **lane)
    async with site(tmp_path, broker.url, dsn, **LANE_SETTINGS, **lane) as place:
        assert await for_real(place, jobs, again, fault) == seen
    return seen


async def test_what_handlers_come_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broker: Broker, ledger_dsn: str
) -> None:
    again = JOBS[0]
    seen = await agreed(monkeypatch, tmp_path, broker, ledger_dsn, jobs=JOBS, again=[again])
    assert [disposition for disposition, *_ in seen["done"].events] == ["complete", "decided"]
    assert seen["promised"].state is State.DONE
    states = {key: one.state for key, one in seen.items() if one.state is not State.DONE}
    assert states == dict.fromkeys(("used-up", "limited-for-ever", "refused", "nobodys"), State.DEAD)


@pytest.mark.parametrize(
    ("fault", "on_unknown", "state", "effects"),
    [
        ("effect", "retry", State.DONE, 2),
        ("effect", "hold", State.UNRESOLVED, 1),
        ("recorded", "retry", State.DONE, 1),
    ],
)
async def test_a_crash(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    broker: Broker,
    ledger_dsn: str,
    fault: str,
    on_unknown: str,
    state: State,
    effects: int,
) -> None:
    jobs = [scripted("k", "done")]
    lane: dict[str, Any] = {"on_unknown": on_unknown}
    seen = await agreed(monkeypatch, tmp_path, broker, ledger_dsn, jobs=jobs, fault=fault, **lane)
    assert (seen["k"].state, seen["k"].effects) == (state, effects)
