"""The meter of the metered provider, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from acklast.config import load
from acklast.config.app import load_app
from bench.clocks import WallClock
from bench.contenders.proof_lanes import BUDGETS
from bench.paced import Load, Outcome, efficiency
from bench.pacing import TABLES, tables_of
from bench.proof import config
from bench.provider import Meter, Quiet, meter_of
from bench.queues import BenchError


def test_a_window_is_full_until_its_first_call_is_a_whole_period_old() -> None:
    meter = Meter(2, 1.0)
    assert [meter.call(at) for at in (0.0, 0.5, 0.999)] == [0, 0, 1]
    assert (meter.arrivals, meter.over, meter.worst) == (3, 1, 3)
    assert meter.call(2.0) == 0
    assert meter.served.tolist() == [0.0, 0.5, 2.0]


def test_a_call_exactly_a_period_after_another_is_in_another_window() -> None:
    meter = Meter(1, 1.0)
    assert [meter.call(at) for at in (0.0, 1.0, 2.0)] == [0, 0, 0]
    assert meter.worst == 1


def test_a_meter_is_told_in_one_word() -> None:
    name, meter = meter_of("slow=5/0.25")
    assert (name, meter.count, meter.period_s) == ("slow", 5, 0.25)


def test_a_quiet_notes_who_calls_after_its_first_refusal_was_answered() -> None:
    meter = Meter(100, 1.0)
    meter.quiets.append(Quiet(until=12.5))
    assert meter.call(10.0, takes_s=0.02) == 3
    meter.call(10.01, takes_s=0.02)  # on its way before the answer was out
    meter.call(10.07, takes_s=0.02)
    meter.call(13.05)
    meter.call(13.06)
    (quiet,) = meter.quiets
    assert quiet.after == 1
    assert quiet.last_after_s == pytest.approx(0.05)
    assert quiet.due_at == pytest.approx(13.02)
    assert quiet.resumed_s == pytest.approx(0.03)
    assert (meter.refused, meter.over) == (3, 0)


def test_efficiency_is_the_ideal_time_over_the_actual_one() -> None:
    load = Load(200, 1.0, 0.02, 30)
    assert efficiency(load, Outcome({}, generations=19, seconds=20.0)) == pytest.approx(0.95)
    assert efficiency(load, Outcome({}, generations=0, seconds=0.0)) == 0
    assert load.possible == pytest.approx(1 / 1.02)
    assert Load(200, 10.0, 2.0, 6).possible == pytest.approx(10 / 10.25)


def test_tables_are_chosen_by_name() -> None:
    assert tables_of("quiet, kept") == [TABLES["quiet"], TABLES["kept"]]
    with pytest.raises(BenchError, match="no table is called fast"):
        tables_of("kept,fast")


@pytest.mark.parametrize(("excess", "count"), [(0.0, 200), (0.1, 220)])
def test_the_daemons_of_the_proof_are_told_the_quotas_that_the_meter_has(
    tmp_path: Path, excess: float, count: int
) -> None:
    path = tmp_path / "acklast.toml"
    path.write_text(config(tmp_path, excess))
    env = {"ACKLAST_BROKER_URL": "amqp://localhost/", "ACKLAST_LEDGER_DSN": "postgresql://localhost/ledger"}
    found = load(path, env)
    load_app(found)
    assert found.budgets["second"].quota.count == count
    assert {name: budget.quota.period_s for name, budget in found.budgets.items()} == {
        name: budget.period_s for name, budget in BUDGETS.items()
    }


def test_a_wall_clock_says_in_its_file_how_far_it_is_set(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "clock")
    assert (tmp_path / "clock").read_text() == "+0\n"
    clock.set(-2.0)
    assert (tmp_path / "clock").read_text() == "-2\n"
