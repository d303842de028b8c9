"""Writes the Grafana dashboard of ``docs/monitoring``: ``python -m dev.dashboard``.

It is made of the catalogue of metrics, so that it asks for what there is; Grafana's classic form, which it
imports in every version since 9.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from acklast.telemetry.catalogue import BUDGET_CONFIGURED, BUILD_INFO, LANE_STATE
from acklast.telemetry.metric import Metric
from dev.panels import ROWS, Panel, Row
from dev.queries import VARIABLES

FILE: Final = Path(__file__).parents[1] / "docs" / "monitoring" / "acklast.dashboard.json"
SCHEMA_VERSION: Final = 38
"""Of Grafana 10; later ones bring it up to theirs as they read it."""
COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 8
_HEIGHT: Final = 8
_KNOWN_BY: Final[dict[str, Metric]] = {"job": BUILD_INFO, "lane": LANE_STATE, "budget": BUDGET_CONFIGURED}
"""From which metric the values of a label are read: one that every daemon has at all times."""


def dashboard() -> dict[str, Any]:
    """The whole of it."""
    return {
        "uid": "acklast",
        "title": "acklast",
        "description": "Lanes, runs, budgets and workers of acklast. Made by python -m dev.dashboard.",
        "tags": ["acklast"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timepicker": {},
        "links": [],
        "annotations": {"list": [_alerts()]},
        "templating": {"list": [_data_source(), *(_variable(label) for label in VARIABLES)]},
        "panels": list(_panels()),
    }


def _alerts() -> dict[str, Any]:
    return {
        "name": "Alerts",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"Acklast.*", alertstate="firing"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{lane}} {{run}} {{instance}}",
    }


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
    }


def _variable(label: str) -> dict[str, Any]:
    """One installation at a time, and any of its lanes and budgets."""
    several = label != "job"
    whole = {"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}} if several else {}
    query = f"label_values({_KNOWN_BY[label].prometheus}, {label})"
    return {
        "name": VARIABLES[label],
        "label": label.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "definition": query,
        "refresh": 2,  # whenever the time range changes: lanes come and go
        "sort": 1,
        "hide": 0,
        "multi": several,
        "includeAll": several,
        **whole,
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row in ROWS:
        number += 1
        yield _row(row, number, y)
        y += 1
        for place, panel in enumerate(row.panels):
            number += 1
            x = place * _WIDTH % COLUMNS
            yield _panel(panel, number, x, y)
            y += _HEIGHT if x + _WIDTH == COLUMNS or place == len(row.panels) - 1 else 0


def _row(row: Row, number: int, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        "panels": [],
    }


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "state-timeline" if panel.yes_no else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                "range": True,
            }
            for place, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _look(panel), "overrides": []},
        "options": _options(panel),
    }


def _look(panel: Panel) -> dict[str, Any]:
    if panel.yes_no:
        words = {"0": {"text": "no", "color": "red"}, "1": {"text": "yes", "color": "green"}}
        return {"unit": panel.unit, "mappings": [{"type": "value", "options": words}]}
    stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
    fill = 30 if panel.stacked else 0
    custom = {"lineWidth": 1, "fillOpacity": fill, "stacking": stacking, "axisSoftMin": 0}
    return {"unit": panel.unit, "custom": custom}


def _options(panel: Panel) -> dict[str, Any]:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    if panel.yes_no:
        return {"legend": legend, "showValue": "never", "mergeValues": True}
    return {"legend": legend | {"calcs": []}, "tooltip": {"mode": "multi", "sort": "desc"}}


def text() -> str:
    """The file, as it is to be."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
