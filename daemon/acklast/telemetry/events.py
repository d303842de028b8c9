"""The one stream of events: what happens is said once, as a value; sinks make of it what they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from acklast.telemetry.trace import Posted, Trace
from acklast_topology.value import value


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the daemon itself: a session, a connection, a drain. ``name`` is dotted snake case."""

    name: str
    level: str = "info"
    fields: Mapping[str, Any] = field(default_factory=dict)


@value
class Settled:
    """A delivery has been settled: the end of one pass through the delivery path.

    ``disposition`` is what became of the delivery: a verdict in snake case, or ``decided``, ``not_due``,
    ``held``, ``conflict``, ``malformed``, ``claim_lost``. Durations are in seconds.
    """

    disposition: str
    lane: str
    key: str | None
    type: str | None = None
    run: str | None = None
    outcome: str | None = None
    reason: str | None = None
    attempt: int | None = None
    fence: int | None = None
    ambiguous: bool = False
    handler_s: float | None = None
    """From the handler's start to its return."""
    total_s: float | None = None
    """From when the delivery was taken in until it was settled."""
    acked: bool = True
    priority: str = "normal"
    """``high``, ``normal`` or ``low``."""
    queue_s: float | None = None
    """From the publisher's timestamp, or ``not-before`` where that is later, until the delivery was taken in:
    of first attempts that a handler was started for. By two clocks, and a timestamp is whole seconds."""
    pace_s: float | None = None
    """From when it was taken in until a slot and a permit were there."""
    claim_s: float | None = None
    """What the ledger took to answer to the claim."""
    record_s: float | None = None
    """What the ledger took to record the verdict."""
    effect_to_ack_s: float | None = None
    """From the handler's return to the ack: how long an effect stands that the broker has not heard of."""
    trace_id: str | None = None
    """The trace that the job belongs to, 32 hexadecimal digits."""
    trace: Trace | None = None
    """What its spans are made of; None where none are."""


@value
class Flushed:
    """A statement for many jobs has come back from the ledger, answered or not: ``ok``.

    ``kind`` is ``jobs``: claims and verdicts, ``size`` of them.
    """

    kind: str
    size: int
    seconds: float
    ok: bool = True


@value
class Published:
    """The broker has confirmed so many messages; ``kind`` says what they were published for."""

    kind: str
    count: int = 1
    posted: tuple[Posted, ...] = ()
    """Those of them that are in a trace, where no delivery's spans tell of it."""


Event: TypeAlias = Notice | Settled | Flushed | Published
Sink: TypeAlias = Callable[[Event], None]


class Emitter:
    """Hands each event to every sink. A sink that fails is the sink's loss, never the job's."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks
        self.failures = 0

    def add(self, sink: Sink) -> None:
        """Hand events to this one too, from now on."""
        self._sinks = (*self._sinks, sink)

    def emit(self, event: Event) -> None:
        for sink in self._sinks:
            try:
                sink(event)
            except Exception:
                self.failures += 1

    def notice(self, name: str, level: str = "info", **fields: Any) -> None:
        self.emit(Notice(name, level, fields))
