"""The part of Grafana's classic dashboard model that is used here, as a JSON Schema.

It follows the model that Grafana publishes of itself (``kinds/dashboard/dashboard_kind.cue`` in its sources).
Where that is closed this is closed too, so that a key with a letter wrong is found; and it asks for more
where the model has a default that would not do: a data source by variable, a refId, a place.
"""

from __future__ import annotations

from typing import Any, Final

_SOURCE: Final = {
    "type": "object",
    "properties": {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}},
    "required": ["type", "uid"],
    "additionalProperties": False,
}
_PLACE: Final = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "minimum": 0, "maximum": 23},
        "y": {"type": "integer", "minimum": 0},
        "w": {"type": "integer", "minimum": 1, "maximum": 24},
        "h": {"type": "integer", "minimum": 1},
    },
    "required": ["x", "y", "w", "h"],
    "additionalProperties": False,
}
_TARGET: Final = {
    "type": "object",
    "properties": {
        "refId": {"type": "string", "pattern": "^[A-Z]$"},
        "datasource": _SOURCE,
        "expr": {"type": "string", "minLength": 1},
        "legendFormat": {"type": "string", "minLength": 1},
        "range": {"const": True},
    },
    "required": ["refId", "datasource", "expr", "legendFormat"],
    "additionalProperties": False,
}
_LOOK: Final = {
    "type": "object",
    "properties": {
        "defaults": {
            "type": "object",
            "properties": {
                "unit": {"enum": ["s", "ops", "short", "percentunit"]},
                "custom": {"type": "object"},
                "mappings": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"type": {"const": "value"}, "options": {"type": "object"}},
                        "required": ["type", "options"],
                        "additionalProperties": False,
                    },
                },
            },
            "required": ["unit"],
            "additionalProperties": False,
        },
        "overrides": {"type": "array", "maxItems": 0},
    },
    "required": ["defaults", "overrides"],
    "additionalProperties": False,
}
_PANEL: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"enum": ["timeseries", "state-timeline"]},
        "title": {"type": "string", "minLength": 1},
        "description": {"type": "string", "minLength": 1},
        "datasource": _SOURCE,
        "gridPos": _PLACE,
        "targets": {"type": "array", "items": _TARGET, "minItems": 1, "maxItems": 26},
        "fieldConfig": _LOOK,
        "options": {"type": "object"},
    },
    "required": [
        "id",
        "type",
        "title",
        "description",
        "datasource",
        "gridPos",
        "targets",
        "fieldConfig",
        "options",
    ],
    "additionalProperties": False,
}
_ROW: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"const": "row"},
        "title": {"type": "string", "minLength": 1},
        "collapsed": {"const": False},
        "gridPos": _PLACE,
        # Of a row that is open the panels stand behind it, and not in it.
        "panels": {"type": "array", "maxItems": 0},
    },
    "required": ["id", "type", "title", "collapsed", "gridPos", "panels"],
    "additionalProperties": False,
}
# The model leaves variables and annotations open: what belongs to a data source stands in them.
_VARIABLE: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": r"^\w+$"},
        "label": {"type": "string"},
        "type": {"enum": ["query", "datasource"]},
        "hide": {"enum": [0, 1, 2]},
        "datasource": _SOURCE,
        "refresh": {"enum": [0, 1, 2]},
    },
    "required": ["name", "type", "query", "refresh", "hide"],
}
_ANNOTATION: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "datasource": _SOURCE, "enable": {"type": "boolean"}},
    "required": ["name", "datasource", "enable", "iconColor", "expr"],
}
SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "uid": {"type": "string", "pattern": r"^[\w-]{1,40}$"},
        "title": {"type": "string", "minLength": 1},
        "description": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "version": {"type": "integer", "minimum": 0},
        "editable": {"type": "boolean"},
        "graphTooltip": {"enum": [0, 1, 2]},
        "timezone": {"type": "string"},
        "refresh": {"type": "string", "pattern": r"^\d+[smhd]$"},
        "time": {
            "type": "object",
            "properties": {"from": {"type": "string"}, "to": {"type": "string"}},
            "required": ["from", "to"],
            "additionalProperties": False,
        },
        "timepicker": {"type": "object"},
        "links": {"type": "array"},
        "annotations": {"type": "object", "properties": {"list": {"type": "array", "items": _ANNOTATION}}},
        "templating": {"type": "object", "properties": {"list": {"type": "array", "items": _VARIABLE}}},
        "panels": {"type": "array", "items": {"oneOf": [_PANEL, _ROW]}, "minItems": 1},
    },
    "required": ["uid", "title", "schemaVersion", "time", "templating", "panels"],
    "additionalProperties": False,
}
