"""SIGKILL at any point of an enqueue: repeated, it ends with one job and one effect for each row."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from acklast.errors import Exit
from acklast.ledger.api import RunView, State
from dev.forker import forker
from harness import Broker, eventually
from harness.daemon import PYTHON_PATH
from harness.scripted import LANE, TYPE
from harness.site import Site, site

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

# The chunk in hand (promising: before its commit), and what the ledger knows of the run then.
POINTS = ("promising:1", "promised:1", "confirmed:60")


def rows(place: Site, run: str, count: int) -> Path:
    """Rows that are jobs of the scripted handler; every tenth repeats the row before it."""
    file = place.directory / f"{run}.jsonl"
    lines = [json.dumps({"n": n - (n % 10 == 9), "steps": [{"do": "done"}]}) for n in range(count)]
    file.write_text("\n".join(lines))
    return file


async def enqueue(place: Site, run: str, file: Path, fault: str = "") -> tuple[int, dict[str, Any]]:
    """The command, in a process of its own; its exit code and its summary."""
    mark, said = place.directory / f"{run}.mark", place.directory / f"{run}.out"
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")}
    env |= {"ACKLAST_FAULT": fault, "ACKLAST_FAULT_MARK": str(mark)} if fault else {}
    options = ["--run", run, "--key", "{run}:{n}", "--type", TYPE, "--json", "--config", str(place.config)]
    with said.open("wb") as log:
        started = forker(PYTHON_PATH).start(
            ["enqueue", LANE, str(file), *options], env, place.directory, log.fileno()
        )
        code = await asyncio.to_thread(started.wait)
    if fault:
        assert (code, mark.read_text()) == (-signal.SIGKILL, fault), said.read_text()
        return code, {}
    return code, json.loads(said.read_text().splitlines()[-1])


async def over(place: Site, run: str) -> RunView:
    """The run's account, once none of its jobs has anything to do."""

    async def found() -> RunView | None:
        view = await place.ledger.run(run)
        assert view is not None
        return None if view.open else view

    return await eventually(found, 120, f"run {run} is over")


async def killed_and_repeated(place: Site, point: str, count: int) -> dict[str, int]:
    """Kill an enqueue there, repeat it; what the second one said of the rows."""
    run = point.replace(":", "-")
    file = rows(place, run, count)
    await enqueue(place, run, file, point)
    code, said = await enqueue(place, run, file)
    assert (code, said["complete"], said["rows"]) == (Exit.OK, True, count)
    view = await place.ledger.run(run)
    assert view is not None
    assert (view.manifest, view.counts) == (count - count // 10, {State.QUEUED: count - count // 10})
    return {fate: n for fate, n in said["counts"].items() if n}


@pytest.mark.soak
async def test_a_killed_enqueue_is_repeated_and_every_row_has_one_effect(
    tmp_path: Path, broker: Broker, ledger_dsn: str
) -> None:
    count = 100
    async with site(tmp_path, broker.url, ledger_dsn) as place:
        said = {point: await killed_and_repeated(place, point, count) for point in POINTS}
        with place.daemon() as daemon:
            await daemon.ready()
            ended = [await over(place, point.replace(":", "-")) for point in POINTS]
            assert await daemon.drained() == Exit.OK
        effects = Counter(noted.key for noted in place.log.effects())
    assert said["promising:1"] == {"accepted": 90, "duplicate": 10}, "nothing had been committed"
    for point in POINTS[1:]:
        # Promised and never started: found again, whether it was published or not.
        assert said[point] == {"again": 90, "duplicate": 10}, point
    assert len(effects) == 90 * len(POINTS)
    assert set(effects.values()) == {1}
    assert [(view.counts, view.balanced) for view in ended] == [({State.DONE: 90}, True)] * len(POINTS)


@pytest.mark.soak
@pytest.mark.parametrize("point", ["promising:2", "promised:2", "promised:3", "confirmed:5500"])
async def test_in_a_later_chunk_it_ends_with_one_job_a_row_as_well(
    tmp_path: Path, broker: Broker, ledger_dsn: str, point: str
) -> None:
    async with site(tmp_path, broker.url, ledger_dsn) as place:
        said = await killed_and_repeated(place, point, 12_000)
    # How much a chunk holds depends on how fast the rows come.
    assert said["again"] > 0, "the first chunk had been promised"
    assert sum(said.values()) == 12_000
