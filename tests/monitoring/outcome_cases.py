"""When the alerts on outcomes and downstreams fire, and when they do not."""

from __future__ import annotations

from typing import Final

from monitoring.case import FRESH, SEEN, Alarm, Case, Series, both, jobs, one


def _buried(values: str, reason: str = "status_422") -> Series:
    return {**SEEN, **one("acklast_buried_total", values, lane="mail", reason=reason)}


def _settled(disposition: str, values: str) -> Series:
    return one("acklast_deliveries_total", values, lane="mail", disposition=disposition)


OUTCOMES: Final = (
    Case(
        "AcklastDeadLetters",
        "three a minute die of one reason, one in five minutes of another",
        "25m",
        {**_buried("0+3x60"), **_buried("0x4 1x4 2x4 3x4 4x4 5", "timeout")},
        (
            Alarm(
                "jobs of lane mail die of status_422",
                "45 dead letters in 15 minutes in lane mail, reason status_422.",
                {"lane": "mail", "reason": "status_422"},
            ),
        ),
    ),
    Case(
        "AcklastDeadLetters",
        "a reason that nobody had seen comes 500 times at once",
        "25m",
        _buried("_x22 500x10"),
        (
            Alarm(
                "jobs of lane mail die of status_422",
                "500 dead letters in 15 minutes in lane mail, reason status_422.",
                {"lane": "mail", "reason": "status_422"},
            ),
        ),
    ),
    Case(
        "AcklastDeadLetters",
        "there were 500, long ago",
        "25m",
        _buried("500x60"),
    ),
    Case(
        "AcklastDeadLetters",
        "there were 500 when Prometheus first looked",
        "5m",
        _buried("500x60"),
    ),
    Case(
        "AcklastJobsDie",
        "one in four dies",
        "25m",
        {**_buried("0+10x60"), **_settled("bury", "0+10x60"), **_settled("complete", "0+30x60")},
        (
            Alarm(
                "too many jobs of lane mail die",
                "25% of what lane mail finished in 15 minutes became dead letters.",
                {"lane": "mail"},
            ),
        ),
    ),
    Case(
        "AcklastJobsDie",
        "one in a hundred does",
        "25m",
        {**_buried("0+10x60"), **_settled("bury", "0+10x60"), **_settled("complete", "0+990x60")},
    ),
    Case(
        "AcklastJobsDie",
        "all of a handful do",
        "25m",
        {
            **_buried("0x9 1x4 2x8 3x3"),
            **_settled("bury", "0x9 1x4 2x8 3x3"),
        },
    ),
    Case(
        "AcklastUnresolved",
        "three jobs wait for a person",
        "17m",
        {**jobs("unresolved", "2x20"), **jobs("unresolved", "1x20", "high")},
        (
            Alarm(
                "lane mail has unresolved jobs",
                "Of 3 jobs of lane mail nobody knows whether their effect happened: a person decides.",
                {"lane": "mail"},
            ),
        ),
    ),
    Case("AcklastUnresolved", "somebody decided in time", "17m", jobs("unresolved", "2x5 0x20")),
    Case(
        "AcklastUnrouted",
        "messages for two lanes that are not there",
        "7m",
        {
            **FRESH,
            **both("acklast_dead_letters", "3x20", lane="mial", reason="unrouted"),
            **both("acklast_dead_letters", "1x20", lane="rnet", reason="unrouted"),
        },
        (
            Alarm(
                "messages came for a lane that is not there",
                "4 messages have a routing key of no lane. They are kept as dead letters.",
            ),
        ),
    ),
    Case(
        "AcklastUnrouted",
        "dead letters of another reason",
        "7m",
        {**FRESH, **both("acklast_dead_letters", "3x20", lane="mail", reason="timeout")},
    ),
    Case(
        "AcklastRedriveWaits",
        "one has stopped",
        "32m",
        {**FRESH, **both("acklast_redrives", "1x60", status="stopped")},
        (
            Alarm(
                "a redrive waits for a verdict",
                "1 redrives have stopped by themselves, and go on when a person says so.",
            ),
        ),
    ),
    Case(
        "AcklastRedriveWaits",
        "one runs, and one has finished",
        "32m",
        {
            **FRESH,
            **both("acklast_redrives", "1x60", status="running"),
            **both("acklast_redrives", "1x60", status="finished"),
        },
    ),
    Case(
        "AcklastScheduleSkipped",
        "a time was skipped",
        "32m",
        one("acklast_schedule_firings_total", "0x20 1x30", schedule="nightly", result="skipped"),
        (
            Alarm(
                "schedule nightly has missed its time",
                "Schedule nightly skipped 1 of its times in 30 minutes: nobody was there to fire them.",
                {"schedule": "nightly"},
            ),
        ),
    ),
    Case(
        "AcklastScheduleSkipped",
        "all are fired",
        "32m",
        {
            **one("acklast_schedule_firings_total", "0+1x60", schedule="nightly", result="fired"),
            **one("acklast_schedule_firings_total", "0x60", schedule="nightly", result="skipped"),
        },
    ),
)

_CALLS: Final = one("acklast_outcomes_total", "0+40x60", lane="mail", outcome="done", reason="")


def _limited(values: str) -> Series:
    refused = {"lane": "mail", "outcome": "rate_limited", "reason": "rate_limited"}
    return {
        **one("acklast_rate_limited_total", values, lane="mail", budget="post"),
        **one("acklast_outcomes_total", values, **refused),
    }


DOWNSTREAM: Final = (
    Case(
        "AcklastDownstreamDown",
        "the breaker of one daemon stays open",
        "12m",
        one("acklast_lane_state", "1x20", lane="mail", state="breaker"),
        (
            Alarm(
                "the downstream of lane mail is down",
                "The breaker of lane mail has been open for 10 minutes: one job at a time probes its "
                "downstream.",
                {"lane": "mail"},
            ),
        ),
    ),
    Case(
        "AcklastDownstreamDown",
        "it closes again",
        "12m",
        one("acklast_lane_state", "1x4 0x20", lane="mail", state="breaker"),
    ),
    Case(
        "AcklastDownstreamQuiet",
        "it has been so for half an hour",
        "32m",
        {**one("acklast_budget_paused_seconds", "300x60", budget="post")},
        (
            Alarm(
                "the downstream of budget post keeps asking for quiet",
                "Budget post has been paused for 30 minutes, and is for 5m 0s more.",
                {"budget": "post"},
            ),
        ),
    ),
    Case(
        "AcklastDownstreamQuiet",
        "it was so for ten minutes",
        "32m",
        one("acklast_budget_paused_seconds", "300x10 0x60", budget="post"),
    ),
    Case(
        "AcklastRateLimited",
        "one call in five is refused",
        "40m",
        {**_CALLS, **_limited("0+10x60")},
        (
            Alarm(
                "the downstream refuses jobs of lane mail for its quota",
                "20% of the calls of lane mail came back as over the quota: the budget is larger than the "
                "quota, or others use it too.",
                {"lane": "mail"},
            ),
        ),
    ),
    Case("AcklastRateLimited", "one in 41 is", "40m", {**_CALLS, **_limited("0+1x60")}),
)
