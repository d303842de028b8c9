"""When the alerts on runs and lanes fire, and when they do not."""

from __future__ import annotations

from typing import Final

from monitoring.case import FRESH, WORKED_ON, Alarm, Case, both, jobs, one, run

DEADLINES: Final = (
    Case(
        "AcklastRunMissesDeadline",
        "the forecast is half an hour behind the deadline",
        "6m",
        run("3600x10", "5400x10"),
        (
            Alarm(
                "run july will miss its deadline",
                "As it goes now run july is finished 30m 0s after its deadline.",
                {"run": "july"},
            ),
        ),
    ),
    Case("AcklastRunMissesDeadline", "it is finished in time", "6m", run("3600x10", "3500x10")),
    Case(
        "AcklastRunMissesDeadline",
        "only a daemon that has not read the ledger for an hour says so",
        "6m",
        {
            **run("7200x10", "3500x10"),
            **one("acklast_run_forecast_seconds", "9000x10", run="july", instance="three"),
            **one("acklast_sample_age_seconds", "3600x10", instance="three"),
        },
    ),
    Case(
        "AcklastRunNearDeadline",
        "a tenth of the time is to spare",
        "12m",
        run("3600x20", "3240x20"),
        (
            Alarm(
                "run july has little time to spare",
                "As it goes now run july is finished only 6m 0s before its deadline.",
                {"run": "july"},
            ),
        ),
    ),
    Case("AcklastRunNearDeadline", "half of the time is to spare", "12m", run("3600x20", "1800x20")),
    Case("AcklastRunNearDeadline", "it is late, which is another alert", "12m", run("3600x20", "5400x20")),
    Case(
        "AcklastRunWithoutForecast",
        "the deadline is near, and nothing gets done",
        "16m",
        run("7200x20", None),
        (
            Alarm(
                "run july has a deadline and no forecast",
                "The deadline of run july is in 2h 0m 0s, and nobody can tell when it is finished: "
                "nothing of it gets done.",
                {"run": "july"},
            ),
        ),
    ),
    Case("AcklastRunWithoutForecast", "the deadline is far", "16m", run("90000x20", None)),
    Case("AcklastRunWithoutForecast", "there is a forecast", "16m", run("7200x20", "60x20")),
)

_OLD: Final = {**FRESH, **both("acklast_backlog_oldest_age_seconds", "5400x60", lane="mail", priority="low")}
_PAUSED: Final = one("acklast_lane_paused_seconds", "600+60x60", lane="mail")
_QUIET: Final = one("acklast_lane_state", "1x60", lane="mail", state="quiet")
_NO_OUTCOME: Final = one("acklast_outcomes_total", "800x60", lane="mail", outcome="done", reason="")
_STALLED: Final = {**jobs("ready", "40x60"), **WORKED_ON, **_NO_OUTCOME}

LANES: Final = (
    Case(
        "AcklastBacklogOld",
        "the oldest has waited for 90 minutes",
        "12m",
        _OLD,
        (
            Alarm(
                "jobs of lane mail wait too long",
                "The oldest job of lane mail that may start has waited for 1h 30m 0s.",
                {"lane": "mail"},
            ),
        ),
    ),
    Case("AcklastBacklogOld", "the lane is paused", "12m", {**_OLD, **_PAUSED}),
    Case(
        "AcklastBacklogOld",
        "it has waited for a minute",
        "12m",
        {**FRESH, **both("acklast_backlog_oldest_age_seconds", "60x60", lane="mail", priority="low")},
    ),
    Case(
        "AcklastLaneStalled",
        "two daemons tell of the same 40 ready jobs, and nothing comes to an outcome",
        "25m",
        _STALLED,
        (
            Alarm(
                "lane mail does nothing, and jobs wait",
                "40 jobs of lane mail wait to be started, and in 15 minutes not one came to an outcome.",
                {"lane": "mail"},
            ),
        ),
    ),
    Case(
        "AcklastLaneStalled",
        "nothing was ever done",
        "25m",
        {**jobs("ready", "40x60"), **WORKED_ON},
        (
            Alarm(
                "lane mail does nothing, and jobs wait",
                "40 jobs of lane mail wait to be started, and in 15 minutes not one came to an outcome.",
                {"lane": "mail"},
            ),
        ),
    ),
    Case(
        "AcklastLaneStalled",
        "all that waits is held by the daemons",
        "25m",
        {
            **jobs("ready", "0x60"),
            **WORKED_ON,
            **_NO_OUTCOME,
            **one("acklast_held", "7x60", lane="mail"),
            **one("acklast_held", "2x60", lane="mail", instance="two"),
        },
        (
            Alarm(
                "lane mail does nothing, and jobs wait",
                "9 jobs of lane mail wait to be started, and in 15 minutes not one came to an outcome.",
                {"lane": "mail"},
            ),
        ),
    ),
    Case("AcklastLaneStalled", "the lane is paused", "25m", {**_STALLED, **_PAUSED}),
    Case("AcklastLaneStalled", "the downstream wants quiet", "25m", {**_STALLED, **_QUIET}),
    Case(
        "AcklastLaneStalled",
        "jobs fail, but do not stand still",
        "25m",
        {
            **_STALLED,
            **one("acklast_outcomes_total", "0+1x60", lane="mail", outcome="transient", reason="status_500"),
        },
    ),
    Case(
        "AcklastLaneStalled",
        "nothing waits",
        "25m",
        {**jobs("ready", "0x60"), **jobs("waiting", "9x60"), **WORKED_ON, **_NO_OUTCOME},
    ),
    Case(
        "AcklastLaneStalled",
        "no daemon serves it, which is another alert",
        "25m",
        {**jobs("ready", "40x60"), **_NO_OUTCOME},
    ),
    Case(
        "AcklastNothingSucceeds",
        "every attempt fails",
        "25m",
        {
            **one("acklast_attempts_total", "0+4x60", lane="mail"),
            **one("acklast_jobs_done_total", "70x60", lane="mail"),
        },
        (
            Alarm(
                "no job of lane mail succeeds",
                "Lane mail spent 60 attempts in 15 minutes, and no job was done.",
                {"lane": "mail"},
            ),
        ),
    ),
    Case(
        "AcklastNothingSucceeds",
        "another daemon has a success",
        "25m",
        {
            **one("acklast_attempts_total", "0+4x60", lane="mail"),
            **one("acklast_jobs_done_total", "70x60", lane="mail"),
            **one("acklast_jobs_done_total", "0+1x60", lane="mail", instance="two"),
        },
    ),
    Case(
        "AcklastNothingSucceeds",
        "one job is retried, and there is no other",
        "25m",
        {
            **one("acklast_attempts_total", "0x9 1x4 2x8 3x3", lane="mail"),
            **one("acklast_jobs_done_total", "70x60", lane="mail"),
        },
    ),
    Case(
        "AcklastLaneWithoutWorker",
        "jobs wait, and nobody serves the lane",
        "7m",
        {**jobs("waiting", "12x20"), **jobs("queued", "3x20")},
        (
            Alarm(
                "no daemon serves lane mail",
                "Lane mail has 15 open jobs, and no daemon with a live lease serves it.",
                {"lane": "mail"},
            ),
        ),
    ),
    Case("AcklastLaneWithoutWorker", "a daemon does", "7m", {**jobs("waiting", "12x20"), **WORKED_ON}),
    Case("AcklastLaneWithoutWorker", "all that is open is dead", "7m", jobs("dead", "12x20")),
    Case(
        "AcklastLaneNotConsumed",
        "the queue is gone in one daemon",
        "7m",
        one("acklast_lane_state", "1x20", lane="mail", state="not_consuming"),
        (
            Alarm(
                "the broker gives one nothing of lane mail",
                "Daemon one serves lane mail, and has had no consumer on its queues for 5 minutes.",
                {"lane": "mail", "instance": "one"},
            ),
        ),
    ),
    Case(
        "AcklastLaneNotConsumed",
        "it was for 2 minutes",
        "7m",
        one("acklast_lane_state", "0 1 1 0 0 0 0 0", lane="mail", state="not_consuming"),
    ),
    Case(
        "AcklastPausedTooLong",
        "it has been paused for five hours",
        "6m",
        one("acklast_lane_paused_seconds", "17640+60x20", lane="mail"),
        (
            Alarm(
                "lane mail is still paused",
                "Somebody paused lane mail 5h 0m 0s ago. Is it forgotten?",
                {"lane": "mail"},
            ),
        ),
    ),
    Case("AcklastPausedTooLong", "it has been for an hour", "6m", _PAUSED),
)
