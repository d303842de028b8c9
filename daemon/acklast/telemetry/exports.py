"""What became of what was to be exported: counted for the metrics, and said once for each outage."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from acklast.telemetry.variables import Signal

FULL: Final = "queue_full"
"""It came while as much as may wait was waiting."""
FAILED: Final = "export_failed"
"""The collector did not take it, or did not answer in time."""
SHUTDOWN: Final = "shutdown"
"""The process ended before it was sent."""

Say = Callable[..., None]


class Exports:
    """Counts by signal. Safe from any thread; ``say`` is called from the exporters' threads."""

    def __init__(self, say: Say | None = None) -> None:
        """``say``: an ``Emitter.notice`` that may be called from any thread."""
        # The garbage collector may end something that logs, in this thread while it holds the lock: the line
        # is dropped, and counted here.
        self._lock = threading.RLock()
        self._say = say
        self._failing: dict[Signal, int] = {}
        self._overflowing: dict[Signal, bool] = {}
        """Whether more was dropped since the last export."""
        self.dropped: Counter[tuple[Signal, str]] = Counter()
        """Spans, records or metric exports that nobody will see, by signal and why."""
        self.exports: Counter[tuple[Signal, str]] = Counter()
        """Requests to the collector, by signal and result: ``ok`` or ``failed``."""
        self.waiting: dict[Signal, Callable[[], int]] = {}
        """How much of each signal waits to be sent."""

    def tells(self, say: Say) -> None:
        """Say outages by this from now on."""
        self._say = say

    def drop(self, signal: Signal, why: str, count: int = 1) -> None:
        with self._lock:
            self.dropped[signal, why] += count
            first = why == FULL and signal not in self._overflowing
            if why == FULL:
                self._overflowing[signal] = True
        if first and self._say is not None:
            self._say("telemetry.overflows", "warning", signal=signal.value)

    def sent(self, signal: Signal) -> None:
        """An export went well."""
        with self._lock:
            self.exports[signal, "ok"] += 1
            lost = self._failing.pop(signal, None)
            if self._overflowing.pop(signal, False):
                self._overflowing[signal] = False  # over only when an export has passed without a drop
        if lost is not None and self._say is not None:
            self._say("telemetry.exporting", signal=signal.value, lost=lost)

    def failed(self, signal: Signal, count: int, why: str) -> None:
        """An export of ``count`` items failed; ``why`` is a short code. The first of an outage is said."""
        with self._lock:
            self.exports[signal, "failed"] += 1
            self.dropped[signal, FAILED] += count
            first = signal not in self._failing
            self._failing[signal] = self._failing.get(signal, 0) + count
        if first and self._say is not None:
            self._say("telemetry.not_exported", "warning", signal=signal.value, why=why)

    def failing(self, signal: Signal) -> bool:
        """Whether the last export of it failed."""
        return signal in self._failing

    def patience_s(self, signal: Signal, most_s: float) -> float:
        """How long to wait for the last export. What has not been taken for a while will hardly be now."""
        return most_s / 4 if self.failing(signal) else most_s

    def queued(self) -> dict[Signal, int]:
        """How much of each signal waits now."""
        return {signal: count() for signal, count in self.waiting.items()}
