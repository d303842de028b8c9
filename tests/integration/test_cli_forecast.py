"""``acklast forecast`` beside a real daemon: what holds a lane back, and whether a run meets its deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from acklast.cli.root import run as command
from acklast.errors import Exit
from acklast.ledger.api import State
from acklast.telemetry import catalogue as of
from harness import Broker, eventually
from harness.scraping import scrape
from harness.scripted import LANE
from harness.site import RUN, Site, scripted, site

HEALTH = """
[health]
listen = "unix:h.sock"
"""
WHY = ("--reason", "a move", "--as", "ann")


@pytest.fixture
async def place(broker: Broker, ledger_dsn: str, tmp_path: Path) -> AsyncIterator[Site]:
    """A lane of four slots under a quota."""
    server = (tmp_path, broker.url, ledger_dsn)
    async with site(*server, more=HEALTH, concurrency=4, quota="20 per 1 s") as made:
        yield made


async def held(place: Site, count: int) -> None:
    """That many jobs of the run, whose handlers wait at the gate ``go``."""
    jobs = [scripted(f"k-{number:03}", {"do": "wait", "gate": "go"}) for number in range(count)]
    await place.promise(jobs)
    await place.publish(*jobs)


async def forecast(place: Site, *more: str, code: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """The lane, and the run."""
    found = await place.command("forecast", *more, code=code)
    [lane], [run] = found["lanes"], found["runs"]
    return lane, run


async def due_in(place: Site, **span: float) -> None:
    deadline = (datetime.now(UTC) + timedelta(**span)).isoformat()
    await place.command("runs", "set", RUN, "--deadline", deadline)


async def test_before_a_daemon_is_there_nobody_can_tell(place: Site) -> None:
    await held(place, 5)
    lane, run = await forecast(place)
    assert (lane["constraint"], lane["jobs"], lane["finish"]) == ("no_worker", 5, None)
    assert (run["run"], run["basis"], run["deadline"], run["meets"]) == (RUN, "unknown", None, None)
    await due_in(place, hours=1)
    _, run = await forecast(place, code=Exit.AT_RISK)
    assert (run["meets"], run["margin_s"]) == ("at_risk", None)


@pytest.mark.soak
async def test_a_daemon_whose_slots_are_full_is_bound_by_them_and_goes_on_by_its_pace(place: Site) -> None:
    await held(place, 80)
    with place.daemon():

        async def full() -> dict[str, Any] | None:
            lane, _ = await forecast(place)
            return lane if lane["constraint"] == "concurrency" else None

        lane = await eventually(full, 60, "the slots are seen to be full")
        assert (lane["figures"]["slots"], lane["figures"]["in_flight"]) == (4, 4)
        place.open_gate("go")

        async def measured() -> dict[str, Any] | None:
            _, run = await forecast(place)
            return run if run["basis"] == "measured" else None

        run = await eventually(measured, 60, "a pace is measured")
        assert run["earliest_s"] <= run["finish_s"] <= run["latest_s"]
        await eventually(lambda: _is_over(place), 60, "the run is over")
    done = await place.command("forecast", "--run", RUN)
    assert (done["runs"], done["lanes"]) == ([], [])


async def _is_over(place: Site) -> bool:
    return (await place.run()).counts.get(State.DONE, 0) == 80


@pytest.mark.soak
async def test_the_exit_code_tells_how_a_run_stands_against_its_deadline(place: Site) -> None:
    await held(place, 60)
    with place.daemon():
        await place.command("lanes", "pause", LANE, "--for", "10m", *WHY)
        for span, code, meets in (
            ({"hours": 3}, Exit.OK, "met"),
            ({"minutes": 5}, Exit.LATE, "missed"),
        ):
            await due_in(place, **span)
            lane, run = await forecast(place, "--run", RUN, code=code)
            assert (run["meets"], lane["constraint"]) == (meets, "paused")
        assert "paused by ann until" in lane["says"]
        await the_metrics_are_the_commands_figures(place, lane, run)
    assert await place.exit_of("forecast", "--run", "nobody") == Exit.NOT_FOUND
    assert await place.exit_of("forecast", "--lane", "nobody") == Exit.USAGE


async def the_metrics_are_the_commands_figures(
    place: Site, lane: dict[str, Any], run: dict[str, Any]
) -> None:
    """Of the daemon that runs. The pause ends at one moment, whenever it is looked at."""
    told = {
        (of.LANE_FORECAST, "lane", LANE): lane["finish"],
        (of.RUN_FORECAST, "run", RUN): run["finish"],
        (of.RUN_DEADLINE, "run", RUN): run["deadline"],
    }

    async def agree() -> bool:
        found = await scrape(place.directory / "state" / "h.sock")
        if not found.has(of.RUN_DEADLINE) or not found.has(of.RUN_FORECAST):
            return False
        now = datetime.now(UTC) - timedelta(seconds=found.value(of.SAMPLE_AGE))
        return all(
            abs((now - datetime.fromisoformat(at)).total_seconds() + found.value(metric, **{label: name})) < 3
            for (metric, label, name), at in told.items()
        )

    await eventually(agree, 60, "the daemon's metrics are the command's figures")


async def test_people_get_the_same_in_two_tables(place: Site, capsys: pytest.CaptureFixture[str]) -> None:
    await held(place, 3)
    await due_in(place, hours=1)
    code = await asyncio.to_thread(command, ["forecast", "--config", str(place.config)])
    out = capsys.readouterr().out
    assert code == Exit.AT_RISK
    assert out.splitlines()[0].split() == ["LANE", "OPEN", "RATE", "FINISHED", "BAND", "BOUND", "BY"]
    assert "no daemon serves it" in out
    assert "at risk" in out
