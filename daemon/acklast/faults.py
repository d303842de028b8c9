"""Named fault points, where the crash tests kill the process. Off, a point costs one test of a constant.

The test harness switches them on by the environment variable ``ACKLAST_FAULT``, which names one point and the
number of the hit at which to die: ``recorded:1``. A line in ``ACKLAST_FAULT_MARK`` tells the harness that the
process died there and nowhere else. ``armed`` puts something else in the place of the death.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

Point: TypeAlias = Literal[
    "received",
    "parsed",
    "entered",
    "claimed",
    "started",
    "effect",
    "decided",
    "recorded",
    "published",
    "acked",
    "emitted",
]
"""A place in the life of a delivery.

``claimed``: nothing has started. ``started``: the handler is about to. ``effect``: it has ended, and nobody
knows yet. ``recorded``: its verdict is durable, and nothing of it is done. ``acked``: the broker knows.
"""
POINTS: Final[tuple[Point, ...]] = get_args(Point)
"""In the order in which a delivery passes them; see ``acklast.delivery``."""

ENQUEUE_POINTS: Final = ("promising", "promised", "confirmed")
"""In the order in which an enqueued chunk passes them: before the commit, after it, at each item's result."""

RELAY_POINT: Final = "relayed"
"""Published by a relay and confirmed, and still in the outbox."""

REDRIVE_POINTS: Final = ("owned", "released", "resent", "noted", "counted", "weighed", "stepped", "finished")
"""In the order in which a redrive passes them; see ``acklast.redriver``.

``released``: the jobs are queued, and nothing is published. ``resent``: it is, and nobody knows. ``counted``:
what became of some is known. ``weighed``: what follows is not known yet. ``stepped``, ``finished``: it is.
"""

QUESTION_POINTS: Final = ("question_taken", "question_answered", "question_recorded")
"""In the order in which a question about an unresolved job passes them: before it is asked, after that, and
once what was found is durable."""

_PLAN: Final = os.environ.get("ACKLAST_FAULT", "")
ARMED = bool(_PLAN)
"""Test it before calling ``point``: ``if faults.ARMED: faults.point("claimed")``."""

_hits: dict[str, int] = {}
_reached: Callable[[str], None] | None = None


@contextmanager
def armed(reached: Callable[[str], None]) -> Iterator[None]:
    """Have every point call ``reached`` with its name, as long as the context lasts, and kill nothing."""
    global ARMED, _reached
    before, (ARMED, _reached) = (ARMED, _reached), (True, reached)
    try:
        yield
    finally:
        ARMED, _reached = before


def point(name: str) -> None:
    """Die here by SIGKILL, as a crash would have it, where the plan says so."""
    if _reached is not None:
        _reached(name)
        return
    planned, _, nth = _PLAN.partition(":")
    if name != planned:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] == int(nth or 1):
        mark = os.environ.get("ACKLAST_FAULT_MARK")
        if mark:
            Path(mark).write_text(_PLAN)
        os.kill(os.getpid(), signal.SIGKILL)
