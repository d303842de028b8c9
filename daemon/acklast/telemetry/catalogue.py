"""Every metric there is: its name, kind, unit, labels and meaning. Pure: the page, the exports and the tests
read it.

A label has few values: names out of the configuration, or words of ours. What others choose freely (reasons)
is cut off at ``MOST``; a key or a job type is no label, and a run is one for 20 at most.
"""

from __future__ import annotations

from typing import Final

from acklast.telemetry.metric import (
    DISPOSITIONS,
    DROPS,
    DURATION_S,
    EXPORTS,
    FIRED,
    FLUSH_JOBS,
    FLUSH_S,
    HANDLED,
    JOB_STATES,
    LANE_STATES,
    OUTCOMES,
    PERMITS,
    PRIORITIES,
    PUBLISHED,
    REDRIVE_STATUSES,
    RENEWALS,
    ROLES,
    RUN_STATUSES,
    SIGNALS,
    WAIT_S,
    Metric,
    counter,
    fleet,
    gauge,
    histogram,
)

# --- what happened --------------------------------------------------------------------------------------

DELIVERIES = counter(
    "acklast.deliveries",
    "{delivery}",
    ("lane", "disposition"),
    "Deliveries that were settled, by what became of them: a verdict, or why there was none.",
    "sum by (lane, disposition) (rate(acklast_deliveries_total[5m]))",
    disposition=DISPOSITIONS,
)
OUTCOMES_TOTAL = counter(
    "acklast.outcomes",
    "{attempt}",
    ("lane", "outcome", "reason"),
    "What claimed jobs came to, by outcome and reason. The reason of `done` is empty.",
    'topk(10, sum by (lane, reason) (rate(acklast_outcomes_total{outcome!="done"}[5m])))',
    outcome=OUTCOMES,
)
ATTEMPTS = counter(
    "acklast.attempts",
    "{attempt}",
    ("lane",),
    "Attempts that were spent. One that a quota refused or a drain ended spends none.",
    "sum by (lane) (rate(acklast_attempts_total[15m])) / sum by (lane) (rate(acklast_jobs_done_total[15m]))",
)
JOBS_DONE = counter(
    "acklast.jobs.done",
    "{job}",
    ("lane",),
    "Jobs that were recorded as done. With `acklast.attempts`: attempts per success.",
)
BURIED = counter(
    "acklast.buried",
    "{job}",
    ("lane", "reason"),
    "Dead letters that were made, by reason: of jobs, of messages that break the contract, and of those that "
    "the broker set aside. The lane is empty where it is none of the daemon's.",
    "sum by (lane, reason) (rate(acklast_buried_total[15m]))",
)
RATE_LIMITED = counter(
    "acklast.rate_limited",
    "{attempt}",
    ("lane", "budget"),
    "Attempts that the downstream refused for its quota. The budget is empty where the lane has none.",
)
DUPLICATES = counter(
    "acklast.duplicates",
    "{delivery}",
    ("lane",),
    "Deliveries of jobs that were decided already: acknowledged, and nothing else.",
)
PUBLISHED_TOTAL = counter(
    "acklast.published",
    "{message}",
    ("kind",),
    "Messages that the broker confirmed, by why they were published: `retry` (into a wait queue), "
    "`fair` (set aside for others), `hand_on` (a carrier for a long job), `relay` (from the outbox), "
    "`redrive`, `missing` (sent again), "
    "`unrouted` (sent on).",
    kind=PUBLISHED,
)
FIRINGS = counter(
    "acklast.schedule.firings",
    "{firing}",
    ("schedule", "result"),
    "What became of a schedule's times, in `acklast scheduler`: `fired`, `done` (all its jobs are promised), "
    "`skipped` (it was too late).",
    result=FIRED,
)
LEASE_RENEWALS = counter(
    "acklast.lease.renewals",
    "{renewal}",
    ("result",),
    "Renewals of the worker session's lease: `renewed`, `failed` (no answer), `refused` (it had run out).",
    result=RENEWALS,
)
LEASE_LOST = counter(
    "acklast.lease.lost",
    "{session}",
    (),
    "Worker sessions that were lost: until the next one is open, nothing starts.",
)
RECONNECTS = counter(
    "acklast.broker.reconnects",
    "{connection}",
    ("role",),
    "Connections to the broker after the first one.",
    role=ROLES,
)
DROPPED = counter(
    "acklast.telemetry.dropped",
    "{item}",
    ("signal", "why"),
    "Spans, data points and log records that did not reach the collector: `queue_full` (it is too slow), "
    "`export_failed`, `shutdown` (there was no time left).",
    signal=SIGNALS,
    why=DROPS,
)
EXPORTS_TOTAL = counter(
    "acklast.telemetry.exports",
    "{export}",
    ("signal", "result"),
    "Exports to the collector. One that failed after all its retries is `failed`.",
    signal=SIGNALS,
    result=EXPORTS,
)

# --- how long it took -----------------------------------------------------------------------------------

HANDLER_DURATION = histogram(
    "acklast.handler.duration",
    "s",
    ("lane", "outcome"),
    DURATION_S,
    "From the handler's start to its outcome.",
    "histogram_quantile(0.95, sum by (lane, le) (rate(acklast_handler_duration_seconds_bucket[5m])))",
    outcome=HANDLED,
)
QUEUE_TIME = histogram(
    "acklast.queue.time",
    "s",
    ("lane", "priority"),
    WAIT_S,
    "From the time that a message has from its publisher (whole seconds, as AMQP has it) until a daemon "
    "took it in. Those without one are not counted, nor are later deliveries of the same job.",
    "histogram_quantile(0.95, sum by (lane, priority, le) (rate(acklast_queue_time_seconds_bucket[5m])))",
    priority=PRIORITIES,
)
PACE_TIME = histogram(
    "acklast.pace.time",
    "s",
    ("lane",),
    DURATION_S,
    "From taken in until a slot of the lane and a permit of its budget were there.",
    "histogram_quantile(0.95, sum by (lane, le) (rate(acklast_pace_time_seconds_bucket[5m])))",
)
EFFECT_TO_ACK = histogram(
    "acklast.effect_to_ack",
    "s",
    ("lane",),
    DURATION_S,
    "From the handler's end to the acknowledgement: the time in which a crash could repeat an effect, "
    "and a little more.",
    "histogram_quantile(0.99, sum by (lane, le) (rate(acklast_effect_to_ack_seconds_bucket[5m])))",
)
FLUSH_SIZE = histogram(
    "acklast.flush.size",
    "{job}",
    (),
    FLUSH_JOBS,
    "Claims and verdicts that went to the ledger in one statement.",
    "rate(acklast_flush_size_sum[5m]) / rate(acklast_flush_size_count[5m])",
)
FLUSH_DURATION = histogram(
    "acklast.flush.duration",
    "s",
    (),
    FLUSH_S,
    "How long the ledger took over such a statement, answered or not.",
    "histogram_quantile(0.99, sum by (instance, le) (rate(acklast_flush_duration_seconds_bucket[5m])))",
)

# --- how this process stands ----------------------------------------------------------------------------

IN_FLIGHT = gauge(
    "acklast.in_flight", "{job}", ("lane",), "Jobs claimed or about to be, without a recorded verdict."
)
HELD = gauge(
    "acklast.held",
    "{delivery}",
    ("lane",),
    "Deliveries taken in that have not got so far, or wait for their carrier.",
)
SLOTS = gauge(
    "acklast.slots",
    "{job}",
    ("lane",),
    "How many jobs of the lane may run at once, as configured and as operators have lowered it.",
    "sum by (lane) (acklast_in_flight) / sum by (lane) (acklast_slots)",
)
LANE_STATE = gauge(
    "acklast.lane.state",
    "",
    ("lane", "state"),
    "1 for how the lane stands in this daemon, 0 for the others.",
    'acklast_lane_state{state!="open"} == 1',
    state=LANE_STATES,
)
LANE_PAUSED = gauge(
    "acklast.lane.paused",
    "s",
    ("lane",),
    "For how long an operator has had the lane paused; 0 where it is not.",
)
BUDGET_CONFIGURED = gauge(
    "acklast.budget.configured",
    "{call}/s",
    ("budget",),
    "What the whole fleet may use of the downstream's quota, by the configuration: the same in every daemon.",
    "max by (budget) (acklast_budget_configured_per_second)",
)
BUDGET_EFFECTIVE = gauge(
    "acklast.budget.effective",
    "{call}/s",
    ("budget",),
    "What this daemon may start as things are: its part, less what pauses, hints and operators hold back.",
    "sum by (budget) (acklast_budget_effective_per_second)",
)
BUDGET_PERMITS = gauge(
    "acklast.budget.permits",
    "{permit}",
    ("budget", "state"),
    "Permits that this daemon holds, and those of them that are out with a call or cool after one (`busy`).",
    'sum by (budget) (acklast_budget_permits{state="busy"})'
    ' / sum by (budget) (acklast_budget_permits{state="held"})',
    state=PERMITS,
)
BUDGET_PAUSED = gauge(
    "acklast.budget.paused",
    "s",
    ("budget",),
    "How long the downstream still wants quiet, as far as is known; 0 where it does not.",
)
LEASE_LEFT = gauge(
    "acklast.lease.left", "s", (), "Until the lease runs out unless it is renewed; 0 without a live session."
)
BROKER_CONNECTED = gauge(
    "acklast.broker.connected",
    "",
    ("role",),
    "1 where the connection can be used. The publisher's cannot be while the broker takes nothing in, and "
    "has no sample where it is not there and nothing needs it.",
    role=ROLES,
)
LEDGER_REACHABLE = gauge(
    "acklast.ledger.reachable", "", (), "0 where somebody asks the ledger in vain, else 1."
)
DRAINING = gauge("acklast.draining", "", (), "1 from the beginning of a drain.")
DRAIN_RUNNING = gauge("acklast.drain.running", "{job}", (), "Handlers that a drain waits for; 0 without one.")
DRAIN_HELD = gauge(
    "acklast.drain.held", "{delivery}", (), "Deliveries that a drain has not settled yet; 0 without one."
)
DRAIN_SETTLED = gauge("acklast.drain.settled", "{delivery}", (), "Deliveries settled since the drain began.")
DRAIN_LEFT = gauge(
    "acklast.drain.left", "s", (), "Until the drain's deadline, below 0 past it; 0 without a drain."
)
QUEUED = gauge(
    "acklast.telemetry.queued", "{item}", ("signal",), "What waits for its export.", signal=SIGNALS
)
BUILD_INFO = gauge(
    "acklast.build.info",
    "",
    ("version", "release"),
    "1. `version` is acklast's own, `release` the application's.",
)

# --- how the fleet stands, by the ledger ----------------------------------------------------------------

JOBS = fleet(
    "acklast.jobs",
    "{job}",
    ("lane", "priority", "state"),
    "Jobs that are not over, by state: `ready` (in the broker's queues, whatever their priority told as "
    "`normal`, and some of them in other states too), `queued`, `waiting`, `claimed`, `unresolved`, `dead`.",
    "max by (lane, priority, state) (acklast_jobs)",
    priority=PRIORITIES,
    state=JOB_STATES,
)
DEAD_LETTERS = fleet(
    "acklast.dead_letters",
    "{letter}",
    ("lane", "reason"),
    "Dead letters that nobody has dealt with, by reason. The lane is empty where it is none that is known.",
    "max by (lane, reason) (acklast_dead_letters)",
)
OLDEST_AGE = fleet(
    "acklast.backlog.oldest_age",
    "s",
    ("lane", "priority"),
    "For how long the oldest job that may start has waited for it; 0 where none does.",
    "max by (lane) (acklast_backlog_oldest_age_seconds)",
    priority=PRIORITIES,
)
RUNS = fleet(
    "acklast.runs", "{run}", ("status",), "Runs that are not over, by how they stand.", status=RUN_STATUSES
)
RUN_DEADLINE = fleet(
    "acklast.run.deadline",
    "s",
    ("run",),
    "Until the run's deadline, below 0 past it: the open runs with the nearest ones, at most 20.",
    "max by (run) (acklast_run_forecast_seconds) > max by (run) (acklast_run_deadline_seconds)",
)
RUN_FORECAST = fleet(
    "acklast.run.forecast", "s", ("run",), "Until the run is finished, as forecast; of the same runs."
)
LANE_FORECAST = fleet(
    "acklast.lane.forecast", "s", ("lane",), "Until all that the lane has to do is done, as forecast."
)
WORKERS = fleet(
    "acklast.workers",
    "{worker}",
    ("lane", "state"),
    "Daemons with a live lease, by how the lane stands in them.",
    state=LANE_STATES,
)
REDRIVES = fleet(
    "acklast.redrives",
    "{redrive}",
    ("status",),
    "Redrives that are not over, by how they stand.",
    status=REDRIVE_STATUSES,
)
SAMPLE_AGE = fleet(
    "acklast.sample.age",
    "s",
    (),
    "How old these figures of the ledger are. Without a ledger they grow old and stay.",
    "min(acklast_sample_age_seconds) > 60",
)
SAMPLE_DURATION = fleet("acklast.sample.duration", "s", (), "How long the ledger took to tell them.")

CATALOGUE: Final = tuple(one for one in list(globals().values()) if isinstance(one, Metric))
OF_DAEMONS: Final = tuple(one for one in CATALOGUE if one is not FIRINGS)
"""What a daemon tells."""
_OF_ALL: Final = (DROPPED, EXPORTS_TOTAL, QUEUED, BUILD_INFO)
OF_RELAYS: Final = (PUBLISHED_TOTAL, *_OF_ALL)
"""What ``acklast relay`` tells."""
OF_SCHEDULERS: Final = (FIRINGS, *_OF_ALL)
"""What ``acklast scheduler`` tells."""
BY_NAME: Final = {one.name: one for one in CATALOGUE}
