"""What the alert rules and the dashboard ask for a real daemon tells, with the labels that they go by."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from acklast.telemetry import catalogue as of
from acklast.telemetry.metric import Metric
from dev import dashboard
from harness import eventually
from harness.promql import selectors, series
from harness.rules import FILE, rules
from harness.scraping import scrape
from harness.site import RUN, Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
HEALTH = """
[health]
listen = "unix:h.sock"
"""
ELSEWHERE = {of.FIRINGS, of.DEAD_LETTERS, of.RUN_FORECAST, of.LANE_FORECAST}
"""A scheduler's; and what this daemon has no figure of: no letters, and no pace to go by yet."""


def asked() -> set[Metric]:
    """Every metric that a rule or a panel asks for."""
    panels = json.loads(dashboard.FILE.read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    expressions = [*shown, *(rule.expression for rule in rules(FILE.read_text()))]
    known = series()
    names = {one.name for expression in expressions for one in selectors(expression)}
    return {known[name] if name in known else known[f"{name}_total"] for name in names}


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_daemon_tells_what_rules_and_dashboard_ask_for(new_site: NewSite) -> None:
    async with new_site(more=HEALTH, quota="1000 per 1 s") as place:
        await place.promise([scripted("promised", "done")])
        deadline = datetime.now(UTC) + timedelta(hours=1)
        await place.command("runs", "set", RUN, "--deadline", deadline.isoformat())
        with place.daemon() as daemon:
            await daemon.ready()

            async def all_told() -> bool:
                told = await scrape(place.directory / "state" / "h.sock")
                missing.clear()
                missing.extend(sorted(one.name for one in asked() - ELSEWHERE if not told.has(one)))
                return not missing

            missing = ["nobody has looked"]
            with suppress(AssertionError):
                await eventually(all_told, 60, "all of it is told")
            assert missing == []
