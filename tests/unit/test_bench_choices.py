"""What the benchmark runs and loads: contenders, jobs, keys, reports."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from bench.loading import Keys, batches
from bench.queues import BenchError
from bench.report import Report, markdown, show, spread, write_json
from bench.roster import CONTENDERS, chosen, listed
from bench.run import main, parse
from bench.site import BODY_BYTES, Site, body
from bench.stats import Spread


def test_without_names_the_usual_contenders_run() -> None:
    assert [each.name for each in chosen("")][:3] == ["a", "b", "b2"]
    assert not any("uvloop" in each.name for each in chosen(""))


def test_named_contenders_run_in_the_order_of_their_names() -> None:
    assert [each.name for each in chosen("d, a-uvloop")] == ["d", "a-uvloop"]


def test_a_slip_in_a_name_is_told_before_anything_starts() -> None:
    with pytest.raises(BenchError, match=r"no contender is called e; there are a, b"):
        chosen("a,e")
    assert main(["--only", "e"]) == 69
    assert main(["--tables", "row"]) == 69


def test_no_two_contenders_share_a_name() -> None:
    names = [each.name for each in CONTENDERS]
    assert len(set(names)) == len(names)
    assert all(name in listed() for name in names)


def test_every_contender_module_is_there() -> None:
    folder = Path(__file__).parents[2]
    assert [
        each.name for each in CONTENDERS if not (folder / f"{each.module.replace('.', '/')}.py").exists()
    ] == []


def test_the_defaults_are_those_of_the_first_two_tables() -> None:
    options = parse([])
    assert (options.tables, options.rounds, options.json) == ("throughput,latency", 3, None)


@pytest.mark.parametrize("number", [0, 9, 123_456, 99_999_999])
def test_a_job_has_its_size_and_is_json(number: int) -> None:
    assert len(body(number)) == BODY_BYTES
    assert json.loads(body(number))["number"] == number


def test_a_site_survives_the_environment() -> None:
    site = Site("amqp://localhost/", "postgresql://localhost/x", 500, 10)
    assert Site.of(site.environment()) == site


@pytest.mark.parametrize("keys", list(Keys))
def test_loaded_keys_come_in_the_order_of_the_index_and_only_once(keys: Keys) -> None:
    old = [keys.old(number, 250_000)[0] for number in range(0, 250_000, 1000)]
    assert old == sorted(set(old))
    assert not {keys.new(number) for number in range(1000)} & set(old)


def test_random_keys_fall_everywhere_between_the_loaded_ones() -> None:
    old = sorted(Keys.RANDOM.old(number, 100)[0] for number in range(100))
    stretches = {sum(key > one for one in old) for key in (Keys.RANDOM.new(number) for number in range(5000))}
    assert len(stretches) > 95


def test_loaded_rows_are_as_many_as_asked_for_and_end_when_asked_for() -> None:
    until = datetime(2025, 6, 1, tzinfo=UTC)
    lines = b"".join(batches(60_001, Keys.RUN, until)).decode().splitlines()
    assert len(lines) == 60_001
    columns = {len(line.split("\t")) for line in lines}
    assert columns == {16}
    assert lines[-1].split("\t")[7].startswith("2025-05-31 23:59")


def test_a_range_is_shown_where_there_is_one() -> None:
    assert spread(Spread(1234.5, 1234.5, 1234.5)) == "1,234"
    assert spread(Spread(2, 1.5, 3), 1) == "2.0\n[dim]1.5-3.0[/dim]"


def test_a_report_is_for_people_and_for_programs(tmp_path: Path) -> None:
    report = Report("t", "Title", ["", "jobs/s"], [["a", "12"]], {"a": {"jobs_per_s": [12.0]}}, ["a note"])
    text = io.StringIO()
    show(Console(file=text, width=80), report)
    assert "Title" in text.getvalue()
    assert "a note" in text.getvalue()
    write_json(tmp_path / "out.json", {"kernel": "6"}, {"rounds": 1}, [report])
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["machine"] == {"kernel": "6"}
    assert found["tables"]["t"]["rows"]["a"]["jobs_per_s"] == [12.0]


def test_a_report_becomes_a_table_of_the_documentation() -> None:
    cells = [["a", spread(Spread(12, 11, 13))], ["b", "9"]]
    report = Report("t", "Title", ["", "CPU\nus"], cells, {})
    assert markdown(report) == ["|  | CPU us |", "| --- | ---: |", "| a | 12 (11-13) |", "| b | 9 |"]
