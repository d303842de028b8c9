"""When the alerts on daemons and servers fire, and when they do not."""

from __future__ import annotations

from typing import Final

from monitoring.case import FRESH, SEEN, Alarm, Case, Series, one

_REACHABLE: Final = one("acklast_ledger_reachable", "1x60")
_UNREACHABLE: Final = one("acklast_ledger_reachable", "0x60")
_UNRENEWED: Final = one("acklast_lease_renewals_total", "0+1x60", result="failed")

_BLIND: Final = "has told its metrics for 5 minutes: every other alert is blind there."

DAEMONS: Final = (
    Case(
        "AcklastDown",
        "the only daemon of one job is gone, and another job has one",
        "25m",
        {**one("acklast_lease_left_seconds", "9x10"), **one("acklast_lease_left_seconds", "9x60", job="b")},
        (Alarm("no daemon of acklast is to be seen", f"No daemon of job acklast {_BLIND}"),),
    ),
    Case(
        "AcklastDown",
        "only a relay was ever there",
        "25m",
        SEEN,
        (Alarm("no daemon of acklast is to be seen", f"No daemon {_BLIND}", of_nobody=True),),
    ),
    Case(
        "AcklastDown",
        "one of two daemons is gone",
        "25m",
        {
            **one("acklast_lease_left_seconds", "9x60"),
            **one("acklast_lease_left_seconds", "9x10", instance="two"),
        },
    ),
    Case(
        "AcklastDaemonUnreachable",
        "one of two does not answer",
        "7m",
        {**one("up", "0x20"), **one("up", "1x20", instance="two")},
        (
            Alarm(
                "daemon one does not answer",
                "Daemon one of job acklast has not answered Prometheus for 5 minutes.",
                {"instance": "one"},
            ),
        ),
    ),
    Case("AcklastDaemonUnreachable", "another product does not", "7m", one("up", "0x20", job="node")),
    Case(
        "AcklastLeaseLost",
        "it was lost once",
        "32m",
        one("acklast_lease_lost_total", "0x20 1x20"),
        (
            Alarm(
                "daemon one lost its lease",
                "Daemon one lost its session 1 times in 30 minutes: what it worked on was taken over, or "
                "is tried again as ambiguous.",
                {"instance": "one"},
            ),
        ),
    ),
    Case("AcklastLeaseLost", "it was lost yesterday", "32m", one("acklast_lease_lost_total", "1x60")),
    Case(
        "AcklastLeaseNotRenewed",
        "no renewal gets through, and the ledger answers others",
        "10m",
        {**_UNRENEWED, **_REACHABLE},
        (
            Alarm(
                "daemon one renews its lease with trouble",
                "5 renewals of the lease of daemon one went wrong in 5 minutes. Without one in time it "
                "starts nothing.",
                {"instance": "one"},
            ),
        ),
    ),
    Case("AcklastLeaseNotRenewed", "the ledger is away", "10m", {**_UNRENEWED, **_UNREACHABLE}),
    Case(
        "AcklastLeaseNotRenewed",
        "all are renewed",
        "10m",
        {**one("acklast_lease_renewals_total", "0+12x60", result="renewed"), **_REACHABLE},
    ),
    Case(
        "AcklastDrainOverdue",
        "the deadline was two minutes ago",
        "3m",
        {**one("acklast_draining", "1x20"), **one("acklast_drain_left_seconds", "-120x20")},
        (
            Alarm(
                "daemon one drains past its deadline",
                "Daemon one should have ended a minute ago, and still drains.",
                {"instance": "one"},
            ),
        ),
    ),
    Case(
        "AcklastDrainOverdue",
        "there is time left",
        "3m",
        {**one("acklast_draining", "1x20"), **one("acklast_drain_left_seconds", "20x20")},
    ),
)


def _flushes(fast: str, all_: str) -> Series:
    name = "acklast_flush_duration_seconds_bucket"
    return {**one(name, fast, le="1"), **one(name, all_, le="2.5"), **one(name, all_, le="+Inf")}


def _connected(role: str, values: str) -> Series:
    return one("acklast_broker_connected", values, role=role)


SERVERS: Final = (
    Case(
        "AcklastLedgerUnreachable",
        "one of two daemons has no answer",
        "4m",
        {**_UNREACHABLE, **one("acklast_ledger_reachable", "1x60", instance="two")},
        (
            Alarm(
                "daemon one cannot reach the ledger",
                "Daemon one has had no answer from Postgres for 2 minutes, and starts nothing.",
                {"instance": "one"},
            ),
        ),
    ),
    Case(
        "AcklastLedgerUnreachable",
        "it restarted within a minute",
        "4m",
        one("acklast_ledger_reachable", "1 0 1 1 1"),
    ),
    Case(
        "AcklastLedgerSlow",
        "half of the flushes take more than a second",
        "25m",
        _flushes("0+50x60", "0+100x60"),
        (
            Alarm(
                "the ledger answers one slowly",
                "One in a hundred flushes of daemon one takes 2.47s or more.",
                {"instance": "one"},
            ),
        ),
    ),
    Case("AcklastLedgerSlow", "none does", "25m", _flushes("0+100x60", "0+100x60")),
    Case(
        "AcklastFiguresStale",
        "the ledger answers, and the figures are ten minutes old",
        "7m",
        {**one("acklast_sample_age_seconds", "600x20"), **_REACHABLE},
        (
            Alarm(
                "daemon one has old figures of the backlog",
                "What daemon one tells of the ledger is 10m 0s old. Where all daemons do, the alerts on "
                "lanes and runs are blind.",
                {"instance": "one"},
            ),
        ),
    ),
    Case("AcklastFiguresStale", "they are new", "7m", {**FRESH, **_REACHABLE}),
    Case(
        "AcklastFiguresStale",
        "the ledger is away, which is another alert",
        "7m",
        {**one("acklast_sample_age_seconds", "600x20"), **_UNREACHABLE},
    ),
    Case(
        "AcklastBrokerDisconnected",
        "the daemon cannot consume",
        "4m",
        _connected("consumer", "0x20"),
        (
            Alarm(
                "daemon one has no broker",
                "Daemon one has been without a broker to consume from for 2 minutes.",
                {"instance": "one", "role": "consumer"},
            ),
        ),
    ),
    Case(
        "AcklastBrokerDisconnected",
        "only the publisher's connection was never needed",
        "4m",
        {**_connected("consumer", "1x20"), **_connected("publisher", "0x20")},
    ),
    Case(
        "AcklastBrokerTakesNothing",
        "the publisher could publish once",
        "20m",
        _connected("publisher", "1x5 0x30"),
        (
            Alarm(
                "the broker takes nothing in from one",
                "Daemon one has not been able to publish for 5 minutes: retries wait in it, and nothing "
                "leaves the outbox.",
                {"instance": "one", "role": "publisher"},
            ),
        ),
    ),
    Case("AcklastBrokerTakesNothing", "it does not need to", "20m", _connected("publisher", "1x5 _x30")),
    Case(
        "AcklastBrokerFlaps",
        "a connection lasts for a minute",
        "25m",
        one("acklast_broker_reconnects_total", "0+1x60", role="consumer"),
        (
            Alarm(
                "daemon one loses the broker again and again",
                "Daemon one connected to the broker 15 times in 15 minutes.",
                {"instance": "one"},
            ),
        ),
    ),
    Case(
        "AcklastBrokerFlaps",
        "the broker restarted once",
        "25m",
        one("acklast_broker_reconnects_total", "0x15 1x30", role="consumer"),
    ),
    Case(
        "AcklastTelemetryDropped",
        "spans do not fit",
        "30m",
        one("acklast_telemetry_dropped_total", "0+100x60", signal="traces", why="queue_full"),
        (
            Alarm(
                "traces of one are lost: queue_full",
                "1.5k items of traces of daemon one did not reach the collector in 15 minutes: "
                "queue_full. Jobs are not affected.",
                {"instance": "one", "signal": "traces", "why": "queue_full"},
            ),
        ),
    ),
    Case(
        "AcklastTelemetryDropped",
        "some did not fit an hour ago",
        "30m",
        one("acklast_telemetry_dropped_total", "100x60", signal="traces", why="queue_full"),
    ),
)
