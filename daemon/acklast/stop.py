"""What tells a daemon to stop: the signals of whoever manages it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from acklast.drain import Cutter
from acklast.telemetry.events import Emitter


@dataclass(slots=True)
class Stop:
    """What the signals ask for."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    cutter: Cutter = field(default_factory=Cutter)


@contextmanager
def stop_signals(emitter: Emitter) -> Iterator[Stop]:
    """SIGTERM drains, and a second one changes nothing; SIGINT drains, and a second one cuts short."""
    stop = Stop()
    loop = asyncio.get_running_loop()

    def on_term() -> None:
        emitter.notice("signal.received", signal="SIGTERM")
        stop.asked.set()

    def on_int() -> None:
        emitter.notice("signal.received", signal="SIGINT")
        if stop.asked.is_set():
            stop.cutter.now.set()
        stop.asked.set()

    loop.add_signal_handler(signal.SIGTERM, on_term)
    loop.add_signal_handler(signal.SIGINT, on_int)
    try:
        yield stop
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)
