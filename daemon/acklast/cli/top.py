"""``acklast top``: lanes, runs, budgets and daemons as they are now, on the whole terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.live import Live

from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, say_json
from acklast.cli.spans import parse_span
from acklast.cli.top_picture import lines_of, picture
from acklast.cli.top_read import Seen, Watch
from acklast.cli.top_view import Shot, Sort, shot
from acklast.config import Config
from acklast.errors import Exit

_EVERY_S: Final = 2.0
_KEYS: Final = "q leaves, s sorts lanes by something else"
_WIDE: Final = 200
"""Columns where nobody looks at a terminal."""


def top(
    every: Annotated[
        str | None, typer.Option("--every", help="How often to look: 2s, 1m. [default: 2s]")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    lane: Annotated[
        list[str] | None, typer.Option("--lane", "-l", help="Only this lane; may be given several times.")
    ] = None,
    sort: Annotated[Sort, typer.Option(help="What lanes are sorted by.")] = Sort.NEED,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show lanes, runs, budgets and daemons as they are now, on the whole terminal; q or Ctrl-C leaves.

    Without a terminal it prints once, unless --every is given.
    """
    every_s = _EVERY_S if every is None else parse_span(every).total_seconds()
    settings = configured(config)
    view = View(settings, tuple(lane or ()), sort)
    console = people()
    terminal = console.is_terminal and not console.is_dumb_terminal
    if once or (every is None and not terminal):
        asyncio.run(_once(view, console, as_json=as_json))
    elif as_json or not terminal:
        asyncio.run(_lines(view, console, every_s, as_json=as_json))
    else:
        asyncio.run(_live(view, console, every_s))
    return Exit.OK


@dataclass(slots=True)
class View:
    """How it is looked at."""

    config: Config
    lanes: tuple[str, ...]
    sort: Sort

    def of(self, seen: Seen) -> Shot:
        """What is shown of what was seen."""
        ledger = seen.ledger.what if seen.ledger else None
        if seen.read is None:
            return Shot(datetime.now(UTC), ledger=ledger, broker=seen.broker)
        told: dict[str, Any] = {"ledger": ledger, "broker": seen.broker}
        return shot(self.config, seen.read, seen.ready, lanes=self.lanes, sort=self.sort, **told)

    def next(self) -> None:
        """Sort by the next thing."""
        order = list(Sort)
        self.sort = order[(order.index(self.sort) + 1) % len(order)]


# --- not on a terminal ------------------------------------------------------------------------------------


async def _once(view: View, console: Console, *, as_json: bool) -> None:
    watch = Watch(view.config, _EVERY_S, lambda: None, view.lanes)
    await watch.once()
    _print(view, watch, console, as_json=as_json)


async def _lines(view: View, console: Console, every_s: float, *, as_json: bool) -> None:
    """Print it again and again, until somebody ends it."""
    watch = Watch(view.config, every_s, lambda: None, view.lanes)
    while True:
        await watch.once()
        _print(view, watch, console, as_json=as_json)
        sys.stdout.flush()
        await asyncio.sleep(every_s)


def _print(view: View, watch: Watch, console: Console, *, as_json: bool) -> None:
    found = view.of(watch.seen)
    if as_json:
        say_json(document(found))
        return
    width = console.width if console.is_terminal else _WIDE
    for line in lines_of(picture(found, width, None, sort=view.sort)):
        console.print(line)


def document(found: Shot) -> dict[str, Any]:
    """For JSON."""
    told: dict[str, Any] = plain(found)
    return told


# --- on a terminal ----------------------------------------------------------------------------------------


async def _live(view: View, console: Console, every_s: float) -> None:
    changed, leave = asyncio.Event(), asyncio.Event()
    watch = Watch(view.config, every_s, changed.set, view.lanes)

    def end() -> None:
        leave.set()
        changed.set()

    def press(text: str) -> None:
        for pressed in pressed_of(text):
            view.next() if pressed == "s" else leave.set()
        changed.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    readers = [asyncio.create_task(one) for one in (watch.ledger(), watch.broker())]
    for reader in readers:
        reader.add_done_callback(lambda _: changed.set())
    with _keys(loop, press), Live(console=console, screen=True, auto_refresh=False) as live:
        while not leave.is_set() and not any(reader.done() for reader in readers):
            changed.clear()
            width, height = console.size
            drawn = picture(view.of(watch.seen), width, height, sort=view.sort, keys=_KEYS)
            live.update(drawn, refresh=True)
            await changed.wait()
    ended = [reader for reader in readers if reader.done()]
    for reader in readers:
        reader.cancel()
    for reader in ended:
        reader.result()


def pressed_of(text: str) -> str:
    """What was pressed: ``q`` or ``s``, or both. An arrow begins with an escape, too, and is nothing."""
    if text == "\x1b":
        return "q"
    return "" if text.startswith("\x1b") else "".join(one for one in text.lower() if one in "qs")


@contextmanager
def _keys(loop: asyncio.AbstractEventLoop, press: Callable[[str], None]) -> Iterator[None]:
    """Keys as they are pressed, without an echo; nothing where standard input is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)

    def read() -> None:
        with suppress(OSError):
            press(os.read(number, 64).decode(errors="replace"))

    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
