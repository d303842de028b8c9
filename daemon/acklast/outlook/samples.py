"""The forecast as metrics: the same figures as ``acklast forecast`` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from acklast.config import Config
from acklast.ledger.backlog import Backlog
from acklast.ledger.standing import Standing
from acklast.outlook.cast import Outlook, outlook
from acklast.outlook.gather import facts_of
from acklast.telemetry import catalogue as of
from acklast.telemetry.metric import Sample

MOST_RUNS: Final = 20
"""Runs that have series of their own: a run is a label, and there may be thousands."""


def outlook_samples(found: Outlook) -> Iterator[Sample]:
    """Seconds from the outlook's moment. What cannot be known has no sample: none is no zero."""
    for lane in found.lanes:
        if lane.finish.likely_s is not None:
            yield Sample(of.LANE_FORECAST, (lane.lane,), round(lane.finish.likely_s, 3))
    for run in islice(found.runs, MOST_RUNS):
        name = (run.run or "",)
        if run.finish.likely_s is not None:
            yield Sample(of.RUN_FORECAST, name, round(run.finish.likely_s, 3))
        if run.deadline is not None:
            yield Sample(of.RUN_DEADLINE, name, round((run.deadline - found.at).total_seconds(), 3))


def reckoned(
    config: Config, backlog: Backlog, standing: Standing, broker: Mapping[str, int]
) -> Sequence[Sample]:
    """The samples of what was read; ``broker`` as ``facts_of`` has it."""
    return tuple(outlook_samples(outlook(facts_of(config, backlog, standing, broker))))
