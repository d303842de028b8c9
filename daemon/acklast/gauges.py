"""How a daemon stands, looked up whenever somebody asks for its metrics: nothing of it is counted or kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from acklast.broker import Link
from acklast.config.models import Config
from acklast.leaving import Left
from acklast.ledger.lease import Lease
from acklast.ledger.watch import LedgerWatch
from acklast.pacing.budgets import Budget
from acklast.reporter import Observed
from acklast.telemetry import catalogue as of
from acklast.telemetry.metric import LANE_STATES, Sample


@dataclass(frozen=True, slots=True)
class Gauges:
    """Asks the parts of one daemon. Called in the event loop; it waits for nothing."""

    config: Callable[[], Config]
    """The one that it goes by."""
    observed: Sequence[Observed]
    pauses: Callable[[], Mapping[str, datetime]]
    """Lanes that an operator has paused, and since when: by the ledger's clock, which may be off ours."""
    budgets: Mapping[str, Budget]
    lease: Lease
    links: Mapping[str, Link]
    """By role."""
    watch: LedgerWatch
    draining: Callable[[], Left | None]

    def __call__(self) -> Iterator[Sample]:
        config = self.config()
        yield from self._lanes()
        yield from self._budgets(config)
        yield from self._servers()
        yield from drain_samples(self.draining())

    def _lanes(self) -> Iterator[Sample]:
        pauses, now = self.pauses(), datetime.now(UTC)
        for one in self.observed:
            report = one.report(time.monotonic())
            lane = (report.lane,)
            yield Sample(of.IN_FLIGHT, lane, report.in_flight)
            yield Sample(of.HELD, lane, report.held)
            yield Sample(of.SLOTS, lane, report.concurrency)
            since = pauses.get(report.lane)
            paused_s = 0.0 if since is None else max(0.0, (now - since).total_seconds())
            yield Sample(of.LANE_PAUSED, lane, round(paused_s, 3))
            for state in LANE_STATES:
                yield Sample(of.LANE_STATE, (report.lane, state), int(state == report.state))

    def _budgets(self, config: Config) -> Iterator[Sample]:
        for name, budget in self.budgets.items():
            quota = config.budgets[name].ours()
            free = budget.free  # asked first: it lets come back what has cooled
            yield Sample(of.BUDGET_CONFIGURED, (name,), quota.count / quota.period_s)
            yield Sample(of.BUDGET_EFFECTIVE, (name,), budget.effective_per_s())
            yield Sample(of.BUDGET_PERMITS, (name, "held"), budget.starts.held)
            yield Sample(of.BUDGET_PERMITS, (name, "busy"), budget.starts.held - free)
            yield Sample(of.BUDGET_PAUSED, (name,), budget.paused_s)

    def _servers(self) -> Iterator[Sample]:
        yield Sample(of.LEASE_LEFT, (), self.lease.left_s)
        yield Sample(of.LEDGER_REACHABLE, (), int(not self.watch.away))
        for role, link in self.links.items():
            # One that is not there and that nothing needs now is no trouble: an alert goes by 0.
            if role == "consumer" or link.connected or link.why:
                yield Sample(of.BROKER_CONNECTED, (role,), int(link.connected))


def drain_samples(left: Left | None) -> Iterable[Sample]:
    """How far a drain has come; zeros where there is none."""
    yield Sample(of.DRAINING, (), int(left is not None))
    yield Sample(of.DRAIN_RUNNING, (), left.running if left else 0)
    yield Sample(of.DRAIN_HELD, (), left.held if left else 0)
    yield Sample(of.DRAIN_SETTLED, (), left.settled if left else 0)
    yield Sample(of.DRAIN_LEFT, (), left.left_s if left else 0)
