"""What signals ask of a process that stays: to stop, or to read its configuration again."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from acklast.drain import Cutter
from acklast.telemetry.events import Emitter

T = TypeVar("T")

_EARLY: Final = threading.Event()
"""A SIGHUP came while the process was not yet, or no more, able to heed it."""


@dataclass(slots=True)
class Stop:
    """What the signals ask for."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    cutter: Cutter = field(default_factory=Cutter)
    reload: asyncio.Event = field(default_factory=asyncio.Event)


class Stopped(Exception):  # noqa: N818 - not an error: there is nothing more to do
    """The process was told to stop before it was up."""


async def unless_stopped(stop: Stop, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` comes to, a part of the start; it is cancelled where the process is to stop meanwhile.

    Raises:
        Stopped: that was so.
    """
    doing, asked = asyncio.ensure_future(work), asyncio.ensure_future(stop.asked.wait())
    try:
        await asyncio.wait({doing, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise Stopped
        return doing.result()
    finally:
        doing.cancel()
        asked.cancel()
        await asyncio.gather(doing, asked, return_exceptions=True)


class _Ended(KeyboardInterrupt):
    """SIGTERM came before anything was begun. Of this kind, as an event loop lets it through, and whoever
    imports handler modules does not take it for theirs.
    """


def _end(*_: object) -> None:
    raise _Ended


@contextmanager
def early_signals() -> Iterator[None]:
    """From the first moment of a command to its last SIGHUP ends nothing: it is kept until it is heeded.

    SIGTERM ends the command at once and in good order, as long as there is nothing to drain. Left to itself
    it would not do so for the first process of a container, which the kernel spares.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # no command of its own: signals are the main thread's
        return
    _EARLY.clear()
    # A function and not SIG_IGN, which every program that a handler starts would inherit.
    before = signal.signal(signal.SIGHUP, lambda *_: _EARLY.set())
    before_term = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    except _Ended:
        return  # the command's answer is then that all is well
    finally:
        signal.signal(signal.SIGHUP, before)
        if signal.getsignal(signal.SIGTERM) is _end:
            signal.signal(signal.SIGTERM, before_term)


@contextmanager
def stop_signals(emitter: Emitter, *, reloads: bool = False) -> Iterator[Stop]:
    """SIGTERM drains, and a second one changes nothing; SIGINT drains, and a second one cuts short. SIGHUP
    reloads where the process can, and else does nothing.
    """
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

    def on_hup() -> None:
        emitter.notice("signal.received", signal="SIGHUP")
        if reloads and not stop.asked.is_set():
            stop.reload.set()
        else:
            why = "it is ending" if stop.asked.is_set() else "only a restart has this command read it again"
            emitter.notice("config.reload_ignored", "warning", why=why)

    ends = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, *ends)}
    loop.add_signal_handler(signal.SIGTERM, on_term)
    loop.add_signal_handler(signal.SIGINT, on_int)
    loop.add_signal_handler(signal.SIGHUP, on_hup)
    if _EARLY.is_set():
        _EARLY.clear()
        on_hup()
    try:
        yield stop
    finally:
        for number in ends:
            with _held_back(number):
                loop.remove_signal_handler(number)
                # One more changes nothing either, up to the last line and the exit code: Python takes
                # functions away before its end, and no handler starts a program any more that would inherit
                # this.
                signal.signal(number, signal.SIG_IGN if stop.asked.is_set() else before[number])
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before[signal.SIGHUP])


@contextmanager
def _held_back(number: signal.Signals) -> Iterator[None]:
    """Let a signal come in once this is over."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
