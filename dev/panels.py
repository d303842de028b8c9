"""What the dashboard shows, row by row: a panel for each question that somebody on call asks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from acklast.telemetry import catalogue as c
from acklast.telemetry.metric import Metric
from dev.queries import Query, gauge, most, of, quantiles, rate


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. ``unit`` is Grafana's name for it; ``yes_no``: 0 and 1 mean no and yes, over time."""

    title: str
    about: str
    unit: str
    queries: tuple[Query, ...]
    yes_no: bool = False
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def _of(title: str, metric: Metric, unit: str, *queries: Query, **more: bool) -> Panel:
    """About one metric, in the catalogue's own words."""
    return Panel(title, metric.description, unit, queries, **more)


def _told(title: str, about: str, unit: str, *queries: Query) -> Panel:
    return Panel(title, about, unit, queries)


def _named(query: Query, name: str) -> Query:
    return Query(query.expression, f"{query.legend} {name}")


_BACKLOG: Final = Row(
    "Backlog and deadlines",
    (
        _of("Jobs by state", c.JOBS, "short", gauge(c.JOBS, "state"), stacked=True),
        _of(
            "Ready jobs by lane and priority",
            c.JOBS,
            "short",
            gauge(c.JOBS, "lane", "priority", state="ready"),
            stacked=True,
        ),
        _of(
            "Unresolved jobs by lane",
            c.JOBS,
            "short",
            gauge(c.JOBS, "lane", state="unresolved"),
            stacked=True,
        ),
        _of("Oldest job that may start", c.OLDEST_AGE, "s", gauge(c.OLDEST_AGE, "lane", "priority")),
        _told(
            "Runs: deadline and forecast",
            "Seconds from now. A run whose forecast lies above its deadline is late.",
            "s",
            _named(gauge(c.RUN_DEADLINE, "run"), "deadline"),
            _named(gauge(c.RUN_FORECAST, "run"), "forecast"),
        ),
        _of("Lanes: all done in", c.LANE_FORECAST, "s", gauge(c.LANE_FORECAST, "lane")),
        _of("Open dead letters by reason", c.DEAD_LETTERS, "short", gauge(c.DEAD_LETTERS, "lane", "reason")),
        _of("Runs by status", c.RUNS, "short", gauge(c.RUNS, "status"), stacked=True),
        _of("Redrives by status", c.REDRIVES, "short", gauge(c.REDRIVES, "status"), stacked=True),
    ),
)
_OUTCOMES: Final = Row(
    "Throughput and outcomes",
    (
        _of("Jobs done", c.JOBS_DONE, "ops", rate(c.JOBS_DONE, "lane")),
        _of("Deliveries by what became of them", c.DELIVERIES, "ops", rate(c.DELIVERIES, "disposition")),
        _of("Outcomes", c.OUTCOMES_TOTAL, "ops", rate(c.OUTCOMES_TOTAL, "lane", "outcome")),
        _told(
            "Failures by reason",
            "The ten most frequent reasons of outcomes that are not done.",
            "ops",
            most(10, rate(c.OUTCOMES_TOTAL, "lane", "outcome", "reason", but={"outcome": "done"})),
        ),
        _of("New dead letters by reason", c.BURIED, "ops", rate(c.BURIED, "lane", "reason")),
        _told(
            "Attempts for each job done",
            f"{c.ATTEMPTS.description} 1 is perfect.",
            "short",
            of(rate(c.ATTEMPTS, "lane"), rate(c.JOBS_DONE, "lane")),
        ),
        _of("Handler time", c.HANDLER_DURATION, "s", *quantiles(c.HANDLER_DURATION, "lane")),
        _of("Time in the queue", c.QUEUE_TIME, "s", *quantiles(c.QUEUE_TIME, "lane", "priority")),
        _of("From effect to ack", c.EFFECT_TO_ACK, "s", *quantiles(c.EFFECT_TO_ACK, "lane")),
        _of("Deliveries of decided jobs", c.DUPLICATES, "ops", rate(c.DUPLICATES, "lane")),
        _of("Published by the daemons", c.PUBLISHED_TOTAL, "ops", rate(c.PUBLISHED_TOTAL, "kind")),
        _of("Firings of schedules", c.FIRINGS, "ops", rate(c.FIRINGS, "schedule", "result")),
    ),
)
_PACING: Final = Row(
    "Pacing",
    (
        _of(
            "How each lane stands", c.LANE_STATE, "short", gauge(c.LANE_STATE, "lane", "state"), stacked=True
        ),
        _told(
            "Slots in use",
            "Jobs in flight of those that may run at once.",
            "percentunit",
            of(gauge(c.IN_FLIGHT, "lane"), gauge(c.SLOTS, "lane")),
        ),
        _of("Held, and not started", c.HELD, "short", gauge(c.HELD, "lane"), stacked=True),
        _of("Waiting for slot and permit", c.PACE_TIME, "s", *quantiles(c.PACE_TIME, "lane")),
        _of("Paused by an operator for", c.LANE_PAUSED, "s", gauge(c.LANE_PAUSED, "lane", how="max")),
        _told(
            "Budgets: configured and effective",
            f"{c.BUDGET_CONFIGURED.description} {c.BUDGET_EFFECTIVE.description}",
            "ops",
            _named(gauge(c.BUDGET_CONFIGURED, "budget", how="max"), "configured"),
            _named(gauge(c.BUDGET_EFFECTIVE, "budget"), "effective"),
        ),
        _of("Permits held and busy", c.BUDGET_PERMITS, "short", gauge(c.BUDGET_PERMITS, "budget", "state")),
        _of(
            "Quiet that the downstream wants",
            c.BUDGET_PAUSED,
            "s",
            gauge(c.BUDGET_PAUSED, "budget", how="max"),
        ),
        _of("Refused for the quota", c.RATE_LIMITED, "ops", rate(c.RATE_LIMITED, "lane", "budget")),
    ),
)
_LEDGER: Final = Row(
    "Ledger",
    (
        _of(
            "Reachable",
            c.LEDGER_REACHABLE,
            "short",
            gauge(c.LEDGER_REACHABLE, "instance", how="min"),
            yes_no=True,
        ),
        _of("Flush time", c.FLUSH_DURATION, "s", *quantiles(c.FLUSH_DURATION, "instance")),
        _of("Flush size", c.FLUSH_SIZE, "short", *quantiles(c.FLUSH_SIZE, "instance")),
        _of("Lease left", c.LEASE_LEFT, "s", gauge(c.LEASE_LEFT, "instance", how="min")),
        _of("Renewals of the lease", c.LEASE_RENEWALS, "ops", rate(c.LEASE_RENEWALS, "instance", "result")),
        _of("Sessions lost", c.LEASE_LOST, "ops", rate(c.LEASE_LOST, "instance")),
        _of("Age of the figures", c.SAMPLE_AGE, "s", gauge(c.SAMPLE_AGE, "instance")),
        _of("Time to read the figures", c.SAMPLE_DURATION, "s", gauge(c.SAMPLE_DURATION, "instance")),
    ),
)
_BROKER: Final = Row(
    "Broker",
    (
        _of(
            "Connected",
            c.BROKER_CONNECTED,
            "short",
            gauge(c.BROKER_CONNECTED, "instance", "role", how="min"),
            yes_no=True,
        ),
        _of("Reconnections", c.RECONNECTS, "ops", rate(c.RECONNECTS, "instance", "role")),
    ),
)
_WORKERS: Final = Row(
    "Workers",
    (
        _of(
            "Daemons by lane, and how it stands",
            c.WORKERS,
            "short",
            gauge(c.WORKERS, "lane", "state"),
            stacked=True,
        ),
        _of("In flight", c.IN_FLIGHT, "short", gauge(c.IN_FLIGHT, "instance", "lane"), stacked=True),
        _of("Versions", c.BUILD_INFO, "short", gauge(c.BUILD_INFO, "version", "release"), stacked=True),
        _of("Daemons that drain", c.DRAINING, "short", gauge(c.DRAINING, "instance"), stacked=True),
        _told(
            "Drain: what is left",
            "Handlers that run, deliveries that are not settled, and those that were.",
            "short",
            _named(gauge(c.DRAIN_RUNNING, "instance"), "running"),
            _named(gauge(c.DRAIN_HELD, "instance"), "held"),
            _named(gauge(c.DRAIN_SETTLED, "instance"), "settled"),
        ),
        _of("Drain: until its deadline", c.DRAIN_LEFT, "s", gauge(c.DRAIN_LEFT, "instance", how="min")),
    ),
)
_TELEMETRY: Final = Row(
    "Telemetry itself",
    (
        _of("Waiting for export", c.QUEUED, "short", gauge(c.QUEUED, "instance", "signal")),
        _of("Dropped", c.DROPPED, "ops", rate(c.DROPPED, "instance", "signal", "why")),
        _of("Exports", c.EXPORTS_TOTAL, "ops", rate(c.EXPORTS_TOTAL, "signal", "result")),
    ),
)
ROWS: Final = (_BACKLOG, _OUTCOMES, _PACING, _LEDGER, _BROKER, _WORKERS, _TELEMETRY)
