"""What goes wrong in a simulation, and at which step: each side effect of every process is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from acklast.testing.stage import Heir


class Fault(StrEnum):
    CRASH_BEFORE = "crash before"
    """The process dies, and the step is not done."""
    CRASH_AFTER = "crash after"
    """The step is done, and the process dies before it hears of it."""
    FAIL_BEFORE = "fail before"
    """The call fails, and the step is not done. (An ack seems sent and never arrives.)"""
    FAIL_AFTER = "fail after"
    """The step is done, and its answer is lost. (An ack arrives and seems to have failed.)"""
    CHANNEL = "channel lost before"
    """The broker closes the process's channel and requeues what it held. The process lives on."""
    FREEZE = "freeze before"
    """The process stands still for longer than its lease, and the broker gives its deliveries to another."""
    STALL = "stall after"
    """The step is done, and the process hears of it only after its lease has run out. Its deliveries stay."""
    DRAIN = "drain before"
    """The process is told to stop, and a successor starts when it has."""


CRASHES: Final = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)


@dataclass(frozen=True, slots=True)
class Blow:
    """One thing that goes wrong."""

    fault: Fault
    heir: Heir = Heir.SAME


Schedule: TypeAlias = Mapping[int, Blow]
"""What goes wrong at which step. A step's number is its place in the order of the whole simulation."""

ALL_WELL: Final[Schedule] = {}
