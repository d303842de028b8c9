"""Where something that is watched is shown: one picture on a terminal, elsewhere a line for each change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.console import Group
from rich.live import Live

from acklast.cli.output import people, say_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look(Generic[T]):
    """How a thing is shown. ``changes``: a line comes where this is another value than before."""

    changes: Callable[[T], object]
    lines: Callable[[T], Iterable[str]]
    document: Callable[[T], Mapping[str, Any]]
    picture: Callable[[T], Group]


@contextmanager
def screen(look: Look[T], *, as_json: bool) -> Iterator[Callable[[T], None]]:
    """What shows the thing as it is now."""
    console = people()
    if as_json or not console.is_terminal:
        yield _lines(look, as_json=as_json)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda found: live.update(look.picture(found), refresh=True)


def _lines(look: Look[T], *, as_json: bool) -> Callable[[T], None]:
    said: object = None

    def show(found: T) -> None:
        nonlocal said
        now = look.changes(found)
        if now == said:
            return
        said = now
        if as_json:
            say_json(look.document(found))
        else:
            for line in look.lines(found):
                people().print(line)

    return show
