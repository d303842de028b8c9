"""How the lanes of a simulated daemon are set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from acklast.config.quota import Quota
from acklast.handlers.app import App
from acklast.pacing.budgets import NO_LIMITS, Limits
from acklast.policy import BreakerRules, Policy
from acklast_topology.ladder import BUCKETS_S

LEASE_S = 60.0
NO_BREAKER = BreakerRules(after=0)


@dataclass(frozen=True, slots=True)
class LaneSetting:
    """One lane. ``budget`` names one of the setting's budgets."""

    policy: Policy
    concurrency: int = 10
    budget: str | None = None
    weight: float = 1.0
    prefetch: int = 1000


@dataclass(frozen=True, slots=True)
class BudgetSetting:
    """One daemon's part of a downstream's quota, and when that counts as down."""

    quota: Quota
    limits: Limits = NO_LIMITS
    breaker: BreakerRules = NO_BREAKER


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that the processes of one stage have in common. Times are in seconds."""

    app: App
    lanes: Mapping[str, LaneSetting]
    budgets: Mapping[str, BudgetSetting] = field(default_factory=dict)
    fan_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lease_s: float = LEASE_S
    drain_s: float = 30.0
    buckets_s: tuple[int, ...] = BUCKETS_S
