"""What a command prints: JSON for programs, rich text for people. Standard output is the answer, always."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.text import Text

from acklast.printable import SEVERAL, safe

__all__ = ["complain", "line", "people", "plain", "safe", "say_json", "second", "text_of"]


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


_UNSEEN: Final = re.compile(r"[^ -~]")


def line(value: Any) -> str:
    """One JSON document on one line."""
    text = json.dumps(plain(value), ensure_ascii=False, default=str)
    # JSON itself lets some of them stand, such as U+009B, with which a command to a terminal begins.
    return text if text.isprintable() else _UNSEEN.sub(_escaped, text)


def _escaped(char: re.Match[str]) -> str:
    return char[0] if char[0].isprintable() else json.dumps(char[0])[1:-1]


def say_json(value: Any) -> None:
    """Print one JSON document on one line of standard output."""
    sys.stdout.write(f"{line(value)}\n")


class People(Console):
    """A console that shows what others wrote, and does nothing that it says.

    Keys, reasons and names come from publishers, handlers and operators: a terminal obeys an escape in one,
    and a line break makes a line that nobody said.
    """

    def print(self, *objects: Any, **how: Any) -> None:
        """Each string on its line; one of several is printed line by line."""
        super().print(*(safe(one, "\t") if isinstance(one, str) else one for one in objects), **how)

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of anything, tables and pictures too."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(safe(segment.text, SEVERAL), segment.style)


def people(*, stderr: bool = False) -> Console:
    """Standard output for people. No markup and no emoji: a key may hold ``[red]`` or ``:bug:``."""
    return People(markup=False, emoji=False, highlight=False, soft_wrap=not stderr, stderr=stderr)


def text_of(text: str, style: str = "") -> Text:
    """One line of a picture."""
    return Text(safe(text), style=style)


def complain(what: str, remedy: str, code: int, *, as_json: bool) -> None:
    """Print an error on standard error: what it is, and what to do about it."""
    with suppress(OSError):  # where nobody can be told, the exit code still tells
        if as_json:
            sys.stderr.write(f"{line({'error': {'what': what, 'remedy': remedy, 'exit': int(code)}})}\n")
        else:
            sys.stderr.write(f"error: {safe(what, SEVERAL)}\n  {safe(remedy, SEVERAL)}\n")
