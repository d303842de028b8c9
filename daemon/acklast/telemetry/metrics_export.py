"""Exports metrics on a timer, in a thread of its own: no job waits for a collector.

The thread asks the event loop for a snapshot, which is the only place where anything is counted, and does all
the rest itself. One export is under way at a time; what a collector that is down or slow does not take is
counted, and the next snapshot has the same and more.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Final, Protocol

from acklast.telemetry.batches import CLOSE_S, ended_within
from acklast.telemetry.exports import SHUTDOWN, Exports
from acklast.telemetry.resource import SCOPE
from acklast.telemetry.snapshot import Snapshot
from acklast.telemetry.span import Attributes
from acklast.telemetry.variables import Exporting, Signal

_ASK_S: Final = 10.0
"""How long the event loop may take to answer: one that is stuck is no reason to stand still too."""


class Exporter(Protocol):
    """Takes a snapshot to where it is to be seen."""

    def export(self, snapshot: Snapshot) -> str:
        """Why it has not arrived, as a short code; empty where it has. Within the time limit of its route."""

    def stop(self) -> None:
        """Give up what is under way."""


class MetricsExport:
    """The thread. ``start`` and ``close`` are called in the event loop."""

    def __init__(
        self, snapshot: Callable[[], Snapshot], make: Callable[[], Exporter], exports: Exports, every_s: float
    ) -> None:
        """``make`` is called in the thread: what it imports takes a while."""
        self._snapshot = snapshot
        self._make = make
        self._exports = exports
        self._every_s = every_s
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._under_way = False
        self._last: Snapshot | None = None
        self._exporter: Exporter | None = None
        exports.waiting[Signal.METRICS] = lambda: int(self._under_way)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        threading.Thread(target=self._run, args=(loop,), name="acklast-metrics", daemon=True).start()

    async def close(self) -> None:
        """Export once more, and wait for it no longer than ``CLOSE_S``. Never raises."""
        self._last = self._snapshot()
        self._closing.set()
        patience_s = self._exports.patience_s(Signal.METRICS, CLOSE_S)
        if not await ended_within(self._ended, patience_s):
            self._exports.drop(Signal.METRICS, SHUTDOWN, _size(self._last))
        if self._exporter is not None:
            with suppress(Exception):
                self._exporter.stop()

    # --- the thread -------------------------------------------------------------------------------------

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            try:
                self._exporter = exporter = self._make()
            except Exception as defect:
                self._exports.failed(Signal.METRICS, 0, f"defect:{type(defect).__name__}")
                return
            while not self._closing.wait(self._every_s):
                if (snapshot := self._ask(loop)) is not None:
                    self._export(exporter, snapshot)
            if self._last is not None:
                self._export(exporter, self._last)
        finally:
            self._ended.set()

    def _ask(self, loop: asyncio.AbstractEventLoop) -> Snapshot | None:
        """What the loop says; None where it does not, or is gone."""
        answer: Future[Snapshot] = Future()

        def take() -> None:
            with suppress(InvalidStateError):  # nobody waits for it any more
                answer.set_result(self._snapshot())

        try:
            loop.call_soon_threadsafe(take)
            return answer.result(_ASK_S)
        except (RuntimeError, TimeoutError):
            answer.cancel()
            return None

    def _export(self, exporter: Exporter, snapshot: Snapshot) -> None:
        self._under_way = True
        try:
            why = exporter.export(snapshot)
        except Exception as defect:
            why = f"defect:{type(defect).__name__}"
        finally:
            self._under_way = False
        if why:
            self._exports.failed(Signal.METRICS, _size(snapshot), why)
        else:
            self._exports.sent(Signal.METRICS)


def _size(snapshot: Snapshot) -> int:
    """How many data points it is."""
    return sum(len(family.points) for family in snapshot.families)


def open_metrics(
    exporting: Exporting,
    exports: Exports,
    snapshot: Callable[[], Snapshot] | None,
    resource: Attributes,
    version: str,
) -> MetricsExport | None:
    """What exports them, where they are exported."""
    route = exporting.routes.get(Signal.METRICS)
    if route is None or snapshot is None:
        return None

    def make() -> Exporter:
        from acklast.telemetry.metrics_otlp import otlp_exporter

        return otlp_exporter(route, resource, SCOPE, version, delta=exporting.delta)

    return MetricsExport(snapshot, make, exports, exporting.metrics_every_s)
