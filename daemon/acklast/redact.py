"""Redacted payloads: what stands at configured places of a JSON message is never shown.

A path is a part of JSONPath (RFC 9535): ``$`` is the message's body, and then any number of

    .name  ['name']     a member
    [0]                 an element, from 0
    .*  [*]             every member and every element
    ..name  ..['name']  the member, wherever below it stands

``headers`` instead of ``$`` is the message's headers: ``headers.authorization``. Nothing else is understood,
and all else is refused when the configuration is read: a path that is taken for another one would show what
it was to hide.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

REDACTED: Final = "[redacted]"
_HEADERS: Final = "headers"

_STEP: Final = re.compile(
    r"""
      (?P<deep>\.\.)? (?: (?(deep)|\.)(?P<name>[A-Za-z_\u0080-\U0010ffff][\w-]*)
                        | \[ (?: '(?P<single>(?:[^'\\]|\\['\\])*)' | "(?P<double>(?:[^"\\]|\\["\\])*)" ) \] )
    | \.\* | \[\*\]
    | \[ (?P<index>0|[1-9][0-9]{0,8}) \]
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object; ``deep``: of any object below, too."""

    name: str
    deep: bool = False


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a list."""

    index: int


@dataclass(frozen=True, slots=True)
class Every:
    """All members and elements."""


Step: TypeAlias = Member | Element | Every
Path: TypeAlias = tuple[Step, ...]


def parse_path(text: str) -> Path:
    """
    Raises:
        ValueError: it is no such path, and why.
    """
    if not text.startswith("$"):
        raise ValueError('must begin with "$" or "headers", like "$.email"')
    steps: list[Step] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            rest = text[at : at + 20]
            raise ValueError(f"cannot be read from {rest!r} on: use .name, ['name'], [0], [*], .* and ..name")
        steps.append(_step(match))
        at = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    found = match.groupdict()
    if found["index"] is not None:
        return Element(int(found["index"]))
    quoted = found["single"] if found["single"] is not None else found["double"]
    name = found["name"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    return Every() if name is None else Member(name, found["deep"] is not None)


def redact(value: Any, paths: Sequence[Path]) -> Any:
    """``value`` with ``REDACTED`` in every place that a path names. It is of JSON, and is left as it was."""
    for path in paths:
        value = _without(value, path)
    return value


def _without(value: Any, path: Path) -> Any:
    if not path:
        return REDACTED
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {name: _member(name, item, path) for name, item in value.items()}
    if isinstance(value, list):
        return [_element(index, item, step, path, rest) for index, item in enumerate(value)]
    return value


def _member(name: str, item: Any, path: Path) -> Any:
    match path[0]:
        case Every():
            return _without(item, path[1:])
        case Member(wanted, deep):
            if deep:
                item = _without(item, path)
            return _without(item, path[1:]) if name == wanted else item
        case _:
            return item


def _element(index: int, item: Any, step: Step, path: Path, rest: Path) -> Any:
    match step:
        case Every():
            return _without(item, rest)
        case Element(wanted) if wanted == index:
            return _without(item, rest)
        case Member(deep=True):
            return _without(item, path)
        case _:
            return item


@dataclass(frozen=True, slots=True)
class Shown:
    """A payload as it may be shown. ``text`` is None where there is none, or where it is ``withheld``.

    ``form``: ``text`` (as it was sent), ``redacted`` (JSON, written anew), ``escaped`` (it is not UTF-8:
    ``\\xNN`` for a byte that is none, and every backslash doubled), ``withheld`` or ``gone``.
    """

    text: str | None
    form: str


def shown(payload: bytes | None, paths: Sequence[Path]) -> Shown:
    """A payload with these places redacted. What cannot be redacted is not shown at all. Never raises."""
    if payload is None:
        return Shown(None, "gone")
    if paths:
        try:
            text = json.dumps(redact(json.loads(payload), paths), ensure_ascii=False)
            text.encode()
        except (ValueError, RecursionError):
            return Shown(None, "withheld")
        return Shown(text, "redacted")
    try:
        return Shown(payload.decode(), "text")
    except UnicodeDecodeError:
        return Shown(payload.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace"), "escaped")


@dataclass(frozen=True, slots=True)
class Redaction:
    """What is hidden of one lane's messages: places of the body, and of the headers."""

    body: tuple[Path, ...] = ()
    headers: tuple[Path, ...] = ()

    @classmethod
    def of(cls, texts: Sequence[str]) -> Redaction:
        """
        Raises:
            ValueError: one of them is no path.
        """
        of_headers = [text for text in texts if text.startswith(_HEADERS)]
        body = [text for text in texts if not text.startswith(_HEADERS)]
        return cls(
            tuple(map(parse_path, body)),
            tuple(parse_path("$" + text.removeprefix(_HEADERS)) for text in of_headers),
        )
