"""What is not exported is counted, and said once for each outage."""

from __future__ import annotations

from typing import Any

from acklast.telemetry.exports import FAILED, FULL, Exports
from acklast.telemetry.variables import Signal


def test_an_outage_is_said_once_and_its_end_with_what_it_cost() -> None:
    said: list[tuple[str, dict[str, Any]]] = []
    exports = Exports(lambda name, level="info", **fields: said.append((name, fields)))
    for _ in range(3):
        exports.failed(Signal.TRACES, 10, "unavailable")
    exports.sent(Signal.TRACES)
    exports.sent(Signal.TRACES)
    assert said == [
        ("telemetry.not_exported", {"signal": "traces", "why": "unavailable"}),
        ("telemetry.exporting", {"signal": "traces", "lost": 30}),
    ]
    assert exports.exports == {(Signal.TRACES, "failed"): 3, (Signal.TRACES, "ok"): 2}
    assert exports.dropped == {(Signal.TRACES, FAILED): 30}


def test_what_does_not_fit_is_said_once_until_all_fits_again() -> None:
    said: list[str] = []
    exports = Exports(lambda name, level="info", **fields: said.append(name))
    for _ in range(3):
        exports.drop(Signal.TRACES, FULL)
        exports.drop(Signal.TRACES, FULL)
        exports.sent(Signal.TRACES)
    assert said == ["telemetry.overflows"]
    exports.sent(Signal.TRACES)
    exports.drop(Signal.TRACES, FULL)
    assert said == ["telemetry.overflows"] * 2


def test_drops_and_what_waits_are_told_by_signal() -> None:
    exports = Exports()
    exports.drop(Signal.LOGS, FULL, 7)
    exports.waiting[Signal.LOGS] = lambda: 3
    assert exports.dropped[Signal.LOGS, FULL] == 7
    assert exports.queued() == {Signal.LOGS: 3}
