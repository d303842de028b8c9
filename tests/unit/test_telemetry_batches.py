"""What waits to be exported: bounded, in batches, in a thread of its own, and every loss counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from acklast.telemetry.batches import REQUEST_BYTES, Batches, NotExported
from acklast.telemetry.exports import FAILED, FULL, SHUTDOWN, Exports
from acklast.telemetry.variables import Batching, Signal
from harness import eventually

SOON = Batching(queue=10, batch=4, delay_s=0.01)


class Collector:
    """Takes batches once it is let go on; fails while it is told to."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.go_on = threading.Event()
        self.taking = threading.Event()
        self.why = ""
        if not hangs:
            self.go_on.set()

    def send(self, batch: Sequence[int]) -> None:
        self.taking.set()
        self.go_on.wait(60)
        if self.why:
            raise NotExported(self.why)
        self.batches.append(list(batch))

    @property
    def taken(self) -> list[int]:
        return [one for batch in self.batches for one in batch]


async def test_all_is_sent_in_order_in_batches_and_the_end_sends_the_rest() -> None:
    collector, exports = Collector(), Exports()
    batches = Batches(Signal.TRACES, collector.send, exports, Batching(100, 4, delay_s=60))
    for number in range(10):
        batches.put([number])
    await eventually(lambda: len(collector.taken) >= 8, what="two batches are sent before their time")
    await batches.close()
    assert collector.taken == list(range(10))
    assert max(map(len, collector.batches)) == 4
    assert not exports.dropped


async def test_a_collector_that_hangs_costs_what_does_not_fit_and_no_time() -> None:
    collector, exports = Collector(hangs=True), Exports()
    batches = Batches(Signal.TRACES, collector.send, exports, SOON)
    batches.put([0])
    await eventually(collector.taking.is_set, what="one is on its way")
    for number in range(1, 101):
        batches.put([number])
    assert batches.full()
    assert exports.dropped[Signal.TRACES, FULL] == 90
    assert exports.queued() == {Signal.TRACES: 11}
    began = time.monotonic()
    await batches.close(within_s=0.1)
    assert time.monotonic() - began < 30
    assert exports.dropped[Signal.TRACES, SHUTDOWN] == 10
    collector.go_on.set()


async def test_what_is_refused_is_counted_and_the_next_batch_is_sent() -> None:
    collector, exports = Collector(), Exports()
    collector.why = "http_400"
    batches = Batches(Signal.LOGS, collector.send, exports, SOON)
    batches.put([1, 2])
    await eventually(lambda: exports.exports[Signal.LOGS, "failed"], what="the first has failed")
    collector.why = ""
    batches.put([3])
    await eventually(lambda: exports.exports[Signal.LOGS, "ok"], what="the second is sent")
    assert collector.taken == [3]
    assert exports.dropped == {(Signal.LOGS, FAILED): 2}
    await batches.close()


async def test_a_defect_in_sending_does_not_end_the_thread() -> None:
    exports, seen = Exports(), threading.Event()

    def send(batch: Sequence[int]) -> None:
        if not seen.is_set():
            seen.set()
            raise RuntimeError("a defect")

    batches = Batches(Signal.TRACES, send, exports, SOON)
    batches.put([1])
    await eventually(lambda: exports.exports[Signal.TRACES, "failed"], what="the defect is counted")
    batches.put([2])
    await eventually(lambda: exports.exports[Signal.TRACES, "ok"], what="the thread goes on")
    await batches.close()


@pytest.mark.parametrize("size", [1, 11])
async def test_after_the_end_nothing_is_taken_in(size: int) -> None:
    """And it is counted for what it is: nobody is told that the collector is too slow."""
    said: list[str] = []
    collector, exports = Collector(), Exports(lambda name, *_, **__: said.append(name))
    batches = Batches(Signal.TRACES, collector.send, exports, SOON)
    await batches.close()
    assert batches.full()
    batches.put(list(range(size)))
    batches.put([])
    assert exports.dropped == {(Signal.TRACES, SHUTDOWN): size}
    assert said == []


async def test_a_request_is_no_larger_than_a_collector_takes_and_nothing_waits_for_a_full_one() -> None:
    """One refused for its size would take all along that was in it."""
    collector, exports = Collector(), Exports()
    size = REQUEST_BYTES // 3
    batches = Batches(
        Signal.LOGS, collector.send, exports, Batching(100, 50, delay_s=60), size=lambda one: one * size
    )
    for number in (1, 1, 1, 1, 1, 9):
        batches.put([number])
    await eventually(lambda: len(collector.taken) == 6, what="none of them waits for the rest of a batch")
    assert all(len(batch) == 1 or sum(batch) <= 3 for batch in collector.batches)
    assert [9] in collector.batches
    await batches.close()


async def test_what_waits_for_a_collector_is_bounded_in_bytes() -> None:
    collector, exports = Collector(hangs=True), Exports()
    batching = Batching(1000, 1, delay_s=0.01)
    batches = Batches(Signal.LOGS, collector.send, exports, batching, size=lambda one: one)
    batches.put([1])
    await eventually(collector.taking.is_set, what="one is on its way")
    for _ in range(100):
        batches.put([2**20])
    assert batches.full()
    assert exports.dropped[Signal.LOGS, FULL] == 84
    collector.go_on.set()
    await eventually(lambda: len(collector.taken) == 17, what="what waited is sent")
    assert not batches.full()
    await batches.close()
