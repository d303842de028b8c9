"""The runbook has a section for each alert, and what it names is there: commands, metrics, events, keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from acklast.config.models import Config
from harness.commands import command_lines, problem
from harness.promql import series
from harness.rules import alerts

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "runbook.md").read_text()
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
SOURCES = "\n".join(path.read_text() for path in sorted((ROOT / "daemon" / "acklast").rglob("*.py")))
DOTTED = set(re.findall(r"`([a-z]+\.[a-z_]+)`", PAGE))


def test_it_has_a_section_for_each_alert_in_their_order() -> None:
    assert list(SECTIONS) == list(alerts())


@pytest.mark.parametrize("name", SECTIONS)
def test_each_says_what_it_means_where_to_look_and_what_to_do(name: str) -> None:
    section = SECTIONS[name]
    assert re.findall(r"^\*\*(\w+)\.\*\*", section, re.MULTILINE) == ["Means", "Look", "Do"]
    look = section.split("**Look.**")[1].split("**Do.**")[0]
    assert [*command_lines(look), *named(look)] or "`" in look


def test_each_command_is_there() -> None:
    lines = set(command_lines(PAGE))
    assert {line: said for line in lines if (said := problem(line))} == {}
    assert {line.split()[1] for line in lines} >= {
        "lanes",
        "why",
        "top",
        "forecast",
        "dead",
        "unresolved",
        "workers",
    }


def test_each_metric_is_in_the_catalogue() -> None:
    known = {*series(), *(metric.prometheus for metric in series().values())}
    assert named(PAGE) - known == set()


def named(text: str) -> set[str]:
    return set(re.findall(r"\backlast_[a-z_]+\b", text))


def test_each_event_and_each_key_is_there() -> None:
    events = {name for name in DOTTED if f'"{name}"' in SOURCES}
    keys = {name for name in DOTTED - events if is_key(*name.split("."))}
    assert DOTTED - events - keys - {"job.settled"} == set()
    assert {"session.lost", "breaker.opened"} <= events


def is_key(section: str, key: str) -> bool:
    model = Config.model_fields[section].annotation if section in Config.model_fields else None
    fields = getattr(model, "model_fields", {})
    return (
        key.removesuffix("_file").removesuffix("_s")
        in {name.removesuffix("_s").removesuffix("_file") for name in fields}
        or f"{key.removesuffix('_file')}s" in fields
    )
