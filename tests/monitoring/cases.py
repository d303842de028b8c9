"""Every case of every alert."""

from __future__ import annotations

from typing import Final

from monitoring import daemon_cases, lane_cases, outcome_cases

CASES: Final = (
    *lane_cases.DEADLINES,
    *lane_cases.LANES,
    *outcome_cases.OUTCOMES,
    *outcome_cases.DOWNSTREAM,
    *daemon_cases.DAEMONS,
    *daemon_cases.SERVERS,
)
