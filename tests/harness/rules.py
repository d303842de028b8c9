"""The file of alert rules, read as far as it is written. promtool says whether it is valid."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).parents[2] / "docs" / "monitoring" / "acklast.rules.yml"
_RULE: Final = re.compile(r"^      - (alert|record): (\S+)\n((?:        .*\n)+)", re.MULTILINE)
_COMMENT: Final = re.compile(r"^ *#.*\n|^\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert, or a figure that is recorded for the alerts."""

    name: str
    alert: bool
    expression: str
    for_: str
    labels: dict[str, str]
    annotations: dict[str, str]
    text: str
    """As it stands in the file, without remarks."""


def rules(text: str) -> list[Rule]:
    """Every rule of a file, in its order."""
    found = [_rule(kind, name, body) for kind, name, body in _RULE.findall(_COMMENT.sub("", text))]
    assert len(found) == len(re.findall(r"^ *- (?:alert|record):", text, re.MULTILINE)), "some are not read"
    return found


def alerts() -> dict[str, Rule]:
    """The alerts that are shipped, by name."""
    return {rule.name: rule for rule in rules(FILE.read_text()) if rule.alert}


def _rule(kind: str, name: str, body: str) -> Rule:
    block = re.search(r"^        expr: \|\n((?:          .*\n)+)", body, re.MULTILINE)
    expression = " ".join(block[1].split()) if block else _value(body, "expr")
    return Rule(
        name,
        kind == "alert",
        expression,
        _value(body, "for"),
        _table(body, "labels"),
        _table(body, "annotations"),
        f"      - {kind}: {name}\n{body}",
    )


def only(rule: Rule, among: Sequence[Rule]) -> str:
    """A file with one alert, and with those figures that it asks for: all of them would take much longer."""
    figures = [one.text for one in among if not one.alert and one.name in rule.expression]
    return "".join(["groups:\n  - name: tried\n    rules:\n", *figures, rule.text])


def _value(body: str, key: str) -> str:
    found = re.search(rf"^        {key}: (.+)$", body, re.MULTILINE)
    return found[1] if found else ""


def _table(body: str, key: str) -> dict[str, str]:
    found = re.search(rf"^        {key}:\n((?:          .*\n)+)", body, re.MULTILINE)
    pairs = re.findall(r"^          (\w+): (.+)$", found[1], re.MULTILINE) if found else []
    return {name: json.loads(value) if value.startswith('"') else value for name, value in pairs}
