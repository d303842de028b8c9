"""When each alert fires, and when something that looks like it does not: what promtool is asked.

Series are as promtool writes them, a value a minute: ``30x20`` is 30 for 20 minutes, ``0+5x20`` grows by 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.rules import Rule

Series = Mapping[str, str]
JOB: Final = "acklast"
"""Whose series they are; a number is added, so that cases that are asked at once do not meet."""
_STEADY: Final = re.compile(r"(^| )(-?\d+)x(\d+)")


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alert as it must read: its labels but for name, severity and job."""

    summary: str
    description: str
    labels: dict[str, str] = field(default_factory=dict)
    of_nobody: bool = False
    """No job is known that it would be of."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is so, and what an alert makes of it after a time."""

    alert: str
    what: str
    at: str
    series: Series
    alarms: tuple[Alarm, ...] = ()


def one(name: str, values: str, **labels: str) -> Series:
    """A series of the daemon ``one``, unless another is named."""
    told = {"job": JOB, "instance": "one"} | labels
    inner = ",".join(f'{label}="{value}"' for label, value in told.items())
    return {f"{name}{{{inner}}}": _STEADY.sub(r"\1\2+0x\3", values)}


def both(name: str, values: str, **labels: str) -> Series:
    """The same of two daemons, as they tell what they read from the ledger."""
    return {**one(name, values, **labels), **one(name, values, **labels | {"instance": "two"})}


FRESH: Final = both("acklast_sample_age_seconds", "7x60")
WORKED_ON: Final = both("acklast_workers", "1x60", lane="mail", state="open")
SEEN: Final = one("acklast_build_info", "1x60", version="1", release="2")


def run(deadline: str, forecast: str | None) -> Series:
    told = both("acklast_run_deadline_seconds", deadline, run="july")
    return {
        **FRESH,
        **told,
        **(both("acklast_run_forecast_seconds", forecast, run="july") if forecast else {}),
    }


def jobs(state: str, count: str, priority: str = "normal") -> Series:
    return {**FRESH, **both("acklast_jobs", count, lane="mail", priority=priority, state=state)}


def document(cases: Iterable[Case], rule: Rule, file: Path) -> dict[str, Any]:
    """What promtool reads of one alert's cases: JSON, which is YAML. Those of one time are asked at once."""
    together: dict[tuple[str, ...], list[Case]] = {}
    for number, case in enumerate(cases):
        # What asks whether anything is there at all is asked alone.
        alone = [str(number)] if "absent(" in rule.expression else []
        together.setdefault((case.at, *alone), []).append(case)
    groups = [_group(some, rule) for some in together.values()]
    return {"rule_files": [str(file)], "evaluation_interval": "1m", "tests": groups}


def _group(cases: Sequence[Case], rule: Rule) -> dict[str, Any]:
    given, expected = [], []
    for number, case in enumerate(cases):
        job = f"{JOB}-{number}"
        for name, values in case.series.items():
            given.append({"series": name.replace(f'job="{JOB}"', f'job="{job}"'), "values": values})
        expected += [_expected(alarm, rule, job) for alarm in case.alarms]
    asked = {"eval_time": cases[0].at, "alertname": rule.name, "exp_alerts": expected}
    return {"interval": "1m", "input_series": given, "alert_rule_test": [asked]}


def _expected(alarm: Alarm, rule: Rule, job: str) -> dict[str, dict[str, str]]:
    of = {} if alarm.of_nobody else {"job": job}
    annotations = {
        "summary": alarm.summary,
        "description": alarm.description.replace(f"of job {JOB} ", f"of job {job} "),
        "runbook_url": rule.annotations["runbook_url"],
    }
    return {"exp_labels": {**rule.labels, **of, **alarm.labels}, "exp_annotations": annotations}
