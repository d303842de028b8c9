"""What a command prints: JSON for programs, rich text for people. Standard output is the answer, always."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from rich.console import Console


def plain(value: Any) -> Any:
    """A value as JSON has it: dataclasses as objects, times as RFC 3339 in UTC, bytes in hexadecimal."""
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.astimezone(UTC).isoformat()
        case bytes():
            return value.hex()
        case Mapping():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


def second(at: datetime | None) -> str:
    """A time for people: RFC 3339 in UTC, to the second; a dash where there is none."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if at else "-"


def line(value: Any) -> str:
    """One JSON document on one line."""
    return json.dumps(plain(value), ensure_ascii=False, default=str)


def say_json(value: Any) -> None:
    """Print one JSON document on one line of standard output."""
    sys.stdout.write(f"{line(value)}\n")


def people() -> Console:
    """Standard output for people. No markup and no emoji: a key may hold ``[red]`` or ``:bug:``."""
    return Console(markup=False, emoji=False, highlight=False, soft_wrap=True)


def complain(what: str, remedy: str, code: int, *, as_json: bool) -> None:
    """Print an error on standard error: what it is, and what to do about it."""
    if as_json:
        sys.stderr.write(f"{line({'error': {'what': what, 'remedy': remedy, 'exit': int(code)}})}\n")
    else:
        sys.stderr.write(f"error: {what}\n  {remedy}\n")
