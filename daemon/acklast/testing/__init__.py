"""For people who write handlers: the real delivery path in memory and in virtual time. See docs/how-to.

Names are looked up at their first use, so that a pytest plugin in this package costs nothing where no test
asks for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acklast.testing.http import CutOff, NotSent, Reply, Request, replies
    from acklast.testing.job import TestJob
    from acklast.testing.script import (
        Crash,
        Disconnect,
        Drain,
        Duplicate,
        Freeze,
        Hang,
        LedgerAway,
        Lost,
    )
    from acklast.testing.stage import Heir
    from acklast.testing.story import Event, Wait
    from acklast.testing.virtual import NotVirtual, Stuck
    from acklast.testing.worker import EPOCH, TestWorker

__all__ = [
    "EPOCH",
    "Crash",
    "CutOff",
    "Disconnect",
    "Drain",
    "Duplicate",
    "Event",
    "Freeze",
    "Hang",
    "Heir",
    "LedgerAway",
    "Lost",
    "NotSent",
    "NotVirtual",
    "Reply",
    "Request",
    "Stuck",
    "TestJob",
    "TestWorker",
    "Wait",
    "replies",
]

_FROM = {
    "http": ("CutOff", "NotSent", "Reply", "Request", "replies"),
    "job": ("TestJob",),
    "script": ("Crash", "Disconnect", "Drain", "Duplicate", "Freeze", "Hang", "LedgerAway", "Lost"),
    "stage": ("Heir",),
    "story": ("Event", "Wait"),
    "virtual": ("NotVirtual", "Stuck"),
    "worker": ("EPOCH", "TestWorker"),
}


def __getattr__(name: str) -> Any:
    for module, names in _FROM.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
