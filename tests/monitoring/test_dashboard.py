"""The dashboard is made of the catalogue: all of that is on it, and it asks for nothing else."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from acklast.telemetry.catalogue import CATALOGUE
from dev.dashboard import COLUMNS, FILE, text
from harness.promql import selectors, series, wrong
from monitoring.grafana import SCHEMA
from monitoring.promtool import ask

DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
VARIABLES = {
    variable["name"]: variable
    for variable in DASHBOARD["templating"]["list"]
    if variable["type"] != "datasource"
}
LABELS = {name: name for name in VARIABLES}
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)


def test_the_file_is_what_is_made_of_the_catalogue() -> None:
    assert FILE.read_text() == text(), "write it anew: python -m dev.dashboard"


def test_it_fits_grafanas_model() -> None:
    assert [str(error) for error in VALIDATOR.iter_errors(DASHBOARD)] == []


def test_a_key_that_grafana_does_not_know_is_found() -> None:
    odd = copy.deepcopy(DASHBOARD)
    odd["panels"][1]["target"] = odd["panels"][1].pop("targets")
    assert not VALIDATOR.is_valid(odd)


@pytest.mark.parametrize("expression", sorted(set(EXPRESSIONS)))
def test_each_expression_asks_for_what_there_is(expression: str) -> None:
    assert wrong(expression, LABELS) == []
    assert list(selectors(expression))


def test_prometheus_can_read_each_expression(promtool: Path, tmp_path: Path) -> None:
    chosen = {f"${name}": ".*" for name in VARIABLES} | {"$__rate_interval": "5m"}
    asked = [re.sub(r"\$\w+", lambda name: chosen[name[0]], expression) for expression in EXPRESSIONS]
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(asked)]
    file = tmp_path / "expressions.json"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    told = ask(promtool, "check", "rules", str(file))
    assert told.returncode == 0, told.stderr
    assert f"{len(rules)} rules found" in told.stdout


def test_it_shows_every_metric() -> None:
    known = series()
    shown = {known[one.name].name for expression in EXPRESSIONS for one in selectors(expression)}
    assert {metric.name for metric in CATALOGUE} - shown == set()


def test_it_shows_what_belongs_together_in_rows() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        "Backlog and deadlines",
        "Throughput and outcomes",
        "Pacing",
        "Ledger",
        "Broker",
        "Workers",
        "Telemetry itself",
    ]


def test_no_two_panels_are_in_one_place() -> None:
    cells: Counter[tuple[int, int]] = Counter()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        for x in range(place["x"], place["x"] + place["w"]):
            cells.update((x, y) for y in range(place["y"], place["y"] + place["h"]))
    assert [cell for cell, count in cells.items() if count > 1] == []
    # Grafana moves up what has nothing above it, so no row may be left out.
    assert {y for _, y in cells} == set(range(max(y for _, y in cells) + 1))


def test_every_id_and_title_is_used_once() -> None:
    ids = Counter(panel["id"] for panel in DASHBOARD["panels"])
    titles = Counter(panel["title"] for panel in DASHBOARD["panels"])
    assert [one for one, count in (*ids.items(), *titles.items()) if count > 1] == []
    for panel in PANELS:
        assert [target["refId"] for target in panel["targets"]] == [*"ABCDEF"[: len(panel["targets"])]]


@pytest.mark.parametrize("name", VARIABLES)
def test_the_values_of_each_variable_come_from_a_metric_that_has_them(name: str) -> None:
    query = VARIABLES[name]["query"]["query"]
    match = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
    assert match
    assert match[2] == name
    assert name == "job" or name in series()[match[1]].labels
    assert any(f'"${name}"' in expression for expression in EXPRESSIONS)
