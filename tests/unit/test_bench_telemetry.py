"""What the measurement of telemetry makes of its figures, and when it says that they are none."""

from __future__ import annotations

import pytest

from bench.drain import Drained
from bench.outages import Outage
from bench.queues import BenchError
from bench.receivers import Taken
from bench.report import Report, markdown
from bench.telemetry import ALL, FEW, HEADINGS, NOBODY, OFF_NAME, Cost, Found, require, rows, short_of
from bench.watched import Ended, exporting


def drained(rate: float) -> Drained:
    return Drained(100, [number / rate for number in range(100)], {"consumer": 1e-4}, 1)


def found(few: float = 95.0, nobody: float = 95.0, during: float = 100.0, hung_s: float = 2.0) -> Found:
    rates = {OFF_NAME: 100.0, FEW: few, ALL: 70.0, NOBODY: nobody}
    costs = {
        name: Cost([drained(rate), drained(2 * rate)], [Taken(3, 40)] * 2) for name, rate in rates.items()
    }
    ends = {name: [Ended(2.0, 2.5)] for name in (OFF_NAME, FEW, NOBODY)}
    ends["1 %, collector hung"] = [Ended(hung_s, hung_s + 3)]
    return Found(costs, [Outage("hung", 98.0, during, 102.0, 1000.0)], ends)


def test_ratios_are_taken_within_a_round_and_an_outage_within_its_run() -> None:
    told = found()
    assert told.kept(FEW).median == pytest.approx(0.95)
    assert told.kept(NOBODY).median == pytest.approx(1.0)
    assert told.outages[0].ratio == pytest.approx(1.0)
    assert short_of(told) == []


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (found(few=85, nobody=85), "metrics, 1 % of traces: 85% of the rate of off, not 90%"),
        (found(nobody=80), "1 %, nobody listens: 84% of the rate of metrics, 1 % of traces, not 95%"),
        (found(during=90), "collector hung: 90% of the rate before and after, not 95%"),
        (
            found(hung_s=2.2),
            "1 %, collector hung: a drain takes 1.10 of the time of one with a collector, not 1.05",
        ),
    ],
)
def test_a_target_that_is_missed_is_named(told: Found, said: str) -> None:
    assert short_of(told) == [said]


@pytest.mark.parametrize(
    ("name", "got"),
    [
        (OFF_NAME, Taken(0, 1)),
        (NOBODY, Taken(1, 0)),
        (FEW, Taken(0, 40)),
        (FEW, Taken(300, 0)),
        (FEW, Taken(30_000, 40)),
        (ALL, Taken(300, 40)),
    ],
)
def test_a_contender_that_did_something_else_has_no_figure(name: str, got: Taken) -> None:
    with pytest.raises(BenchError, match=name.replace("+", ".")):
        require(name, got, 10_000)


@pytest.mark.parametrize(
    ("name", "got"),
    [(OFF_NAME, Taken(0, 0)), (NOBODY, Taken(0, 0)), (FEW, Taken(300, 40)), (ALL, Taken(30_000, 40))],
)
def test_one_that_did_what_it_says_has(name: str, got: Taken) -> None:
    require(name, got, 10_000)


def test_the_table_has_a_line_for_each_with_all_its_columns() -> None:
    told = list(rows(found()))
    assert [line[0] for line in told] == [OFF_NAME, FEW, ALL, NOBODY, "1 %, collector hung"]
    assert {len(line) for line in told} == {len(HEADINGS)}
    lines = markdown(Report("telemetry", "", HEADINGS, told, {}))
    assert {line.count("|") for line in lines} == {len(HEADINGS) + 1}


def test_a_daemon_is_told_where_to_export_and_how_much() -> None:
    env = exporting({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}, 0.01)
    assert env["OTEL_TRACES_SAMPLER_ARG"] == "0.01"
    assert env["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:4317"
    assert env["ACKLAST__HEALTH__LISTEN"].startswith("127.0.0.1:")
