"""The key template: ``{run}:{property_id}``, filled from a row's fields. Plain names, nothing else.

``str.format`` itself would reach attributes and items of what it is given; a template comes from a command
line, a crontab or a web form, so only the names are read here and the text is put together by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Any

RUN_FIELD = "run"
"""Stands for the run's own id, whatever a row's field of that name holds."""

_FIELD = re.compile(r"[^\W\d][\w -]*\Z")


class BadField(ValueError):  # noqa: N818 - named for what is true, not for being an error
    """A row has no usable value for a field of the template."""


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """Literals, each with the field after it: ``(("", "run"), (":", "id"))``; the last may lack one."""

    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def parse(cls, text: str) -> KeyTemplate:
        """Read a template; ``{{`` and ``}}`` stand for braces.

        Raises:
            ValueError: it is none, or it names no field that tells rows apart.
        """
        parts = tuple(_part(*part) for part in Formatter().parse(text))
        template = cls(parts)
        if not template.fields:
            raise ValueError("names no field of the row, so every row would have the same key")
        return template

    @property
    def fields(self) -> frozenset[str]:
        """The row fields that the key is made of."""
        return frozenset(name for _, name in self.parts if name is not None and name != RUN_FIELD)

    def render(self, run: str, row: Mapping[str, Any]) -> str:
        """The key of a row.

        Raises:
            BadField: a field is missing, empty, or neither text nor a whole number.
        """
        return "".join(literal + _value(name, run, row) for literal, name in self.parts)


def _part(literal: str, name: str | None, spec: str | None, conversion: str | None) -> tuple[str, str | None]:
    if name is None:
        return literal, None
    if spec or conversion or _FIELD.match(name) is None:
        raise ValueError(f"may hold plain field names in braces only, not {{{name}}} with more to it")
    return literal, name


def _value(name: str | None, run: str, row: Mapping[str, Any]) -> str:
    if name is None:
        return ""
    value = run if name == RUN_FIELD else row.get(name)
    match value:
        case None | "":
            # An empty part would give different rows the same key.
            raise BadField(f"field {name!r} of the key is {'empty' if name in row else 'missing'}")
        case bool() | float():
            raise BadField(f"field {name!r} of the key must be text or a whole number")
        case str() | int():
            return str(value)
        case _:
            raise BadField(f"field {name!r} of the key must be text or a whole number")
