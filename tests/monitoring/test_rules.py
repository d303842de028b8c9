"""Each alert fires when it should, is quiet when it should, and asks for metrics that there are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.promql import selectors, wrong
from harness.rules import FILE, Rule, alerts, only, rules
from monitoring.case import Case, document
from monitoring.cases import CASES
from monitoring.promtool import ask

RULES = rules(FILE.read_text())
ALERTS = alerts()
RUNBOOK = "docs/how-to/runbook.md"


def test_promtool_takes_the_file(promtool: Path) -> None:
    told = ask(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(FILE))
    assert told.returncode == 0, told.stderr + told.stdout


def test_when_each_fires_and_when_it_does_not(promtool: Path, tmp_path: Path) -> None:
    assert outcome(promtool, tmp_path, CASES) == ""


def test_a_case_that_is_wrong_is_found(promtool: Path, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.alarms)
    assert "exp:" in outcome(promtool, tmp_path, [replace(case, alarms=())])


def outcome(promtool: Path, directory: Path, cases: Sequence[Case]) -> str:
    """What promtool says against these cases; nothing where all are as they should be."""
    asked = []
    for name, rule in ALERTS.items():
        of = [case for case in cases if case.alert == name]
        file = directory / f"{name}.yml"
        file.write_text(only(rule, RULES))
        asked.append(directory / f"{name}.json")
        asked[-1].write_text(json.dumps(document(of, rule, file)))
    told = ask(promtool, "test", "rules", *map(str, asked))
    return told.stderr + told.stdout if told.returncode else ""


@pytest.mark.parametrize("name", ALERTS)
def test_each_has_a_case_that_fires_and_one_that_does_not(name: str) -> None:
    assert {bool(case.alarms) for case in CASES if case.alert == name} == {True, False}


@pytest.mark.parametrize("name", ALERTS)
def test_each_says_what_it_is_about(name: str) -> None:
    rule = ALERTS[name]
    assert name.startswith("Acklast")
    assert rule.for_
    assert rule.labels.keys() == {"severity"}
    assert rule.labels["severity"] in {"critical", "warning"}
    assert rule.annotations.keys() == {"summary", "description", "runbook_url"}
    assert rule.annotations["runbook_url"] == f"{RUNBOOK}#{name.lower()}"
    about = {
        label for label in ("lane", "run", "budget") if f"$labels.{label}" in rule.annotations["summary"]
    }
    assert all(f"$labels.{label}" in rule.annotations["description"] for label in about)


def test_no_name_is_used_twice() -> None:
    names = Counter(rule.name for rule in RULES)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_asks_for_what_there_is(rule: Rule) -> None:
    assert wrong(rule.expression) == []
    assert list(selectors(rule.expression)) or rule.name == "AcklastDaemonUnreachable"


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("acklast_gone > 0", "no metric is called acklast_gone"),
        ('acklast_jobs{lane="mail",reason="x"}', "acklast_jobs has no label reason"),
        ('acklast_jobs{state=~"ready|lost"}', "state of acklast_jobs is never ['lost']"),
        ("sum by (job, budget) (acklast_jobs)", "nothing in it has a label budget"),
        ("lane:acklast_gone:max", "no metric is called acklast_gone"),
    ],
)
def test_what_there_is_not_is_found(expression: str, problem: str) -> None:
    assert wrong(expression) == [problem]
