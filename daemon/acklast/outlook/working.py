"""For how much of each minute somebody was at work on a lane, and there was something to do. Pure.

A daemon that has worked the last five seconds of a minute has done little in it, and is not slow for that. So
a minute counts for as long as it was worked in: from when a daemon lived, from when a pause was over, from
when jobs came.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final

from acklast.outlook.facts import Minute

_ROUNDED_S: Final = 15.0
"""By so much ``busy_s`` may be too short: the ledger counts what waits by quarters of a minute."""
_NO_TIME_S: Final = 0.001
"""In a shorter time nothing happens: what did, did at another, and a rate made of it would be absurd."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time, in seconds from now: what is past is negative."""

    begin_s: float
    end_s: float = 0.0

    @property
    def length_s(self) -> float:
        return max(0.0, self.end_s - self.begin_s)

    def within(self, other: Span) -> Span:
        """The part of it that lies in the other; of no length where none does."""
        return Span(max(self.begin_s, other.begin_s), min(self.end_s, other.end_s))


@dataclass(frozen=True, slots=True)
class Times:
    """What is known of a lane's times.

    ``here``: when a daemon lived that serves it. ``stops``: when it was paused. ``busy_s``: for how long
    something has been there to be started, at least. ``came``: when jobs came that are not over, in seconds
    from now.
    """

    here: Sequence[Span] = ()
    stops: Sequence[Span] = ()
    busy_s: float = 0.0
    came: Sequence[float] = ()


def minutes_of(counts: Sequence[tuple[int, int]], running_s: float, times: Times) -> list[Minute]:
    """``counts``: what ended and what started in each minute, the newest first; that one has run for
    ``running_s``.
    """
    windows = [Span(-running_s, 0.0)]
    windows += [Span(-running_s - 60 * ago, -running_s - 60 * (ago - 1)) for ago in range(1, len(counts))]
    found: list[Minute] = []
    rested, worked = True, without(joined(times.here), joined(times.stops))
    for (ended, started), window in reversed(list(zip(counts, windows, strict=False))):
        one = _minute(ended, started, window, times, worked, rested=rested)
        rested = not one.worked_s
        found.append(one)
    return found[::-1]


def _minute(
    ended: int, started: int, window: Span, times: Times, at_work: Sequence[Span], *, rested: bool
) -> Minute:
    """``rested``: in the minute before nothing was done, or nothing is known of it."""
    length_s = window.length_s
    happened = bool(ended or started)
    waited = -times.busy_s < (window.begin_s + window.end_s) / 2
    begin_s = _began_s(window, times) if rested and happened else window.begin_s
    sure = begin_s is not None
    worked = Span(window.begin_s if begin_s is None else begin_s, window.end_s)
    worked_s = sum(one.within(worked).length_s for one in _touching(at_work, worked))
    if happened and worked_s < _NO_TIME_S:
        # By somebody of whom nothing is known, nor for how long: such as a daemon after its last word.
        worked_s, sure = length_s, False
    if not happened and not waited:
        worked_s = 0.0
    return Minute(ended, started, length_s, idle_s=length_s - worked_s, fresh=rested, sure=sure)


def _began_s(window: Span, times: Times) -> float | None:
    """From when there was something to do, in a minute after one without; None where it cannot be told."""
    known = (-times.busy_s, *times.came)
    if min(at for at in known if at >= -times.busy_s - _ROUNDED_S) <= window.begin_s:
        return window.begin_s
    return min((at for at in known if window.begin_s < at < window.end_s), default=None)


# --- spans ------------------------------------------------------------------------------------------------
# A daemon that ends again and again leaves hundreds of sessions: each time is looked for once.


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same times in order, without any of them twice."""
    found: list[Span] = []
    for one in sorted((one for one in spans if one.length_s), key=lambda span: span.begin_s):
        if found and one.begin_s <= found[-1].end_s:
            found[-1] = Span(found[-1].begin_s, max(found[-1].end_s, one.end_s))
        else:
            found.append(one)
    return found


def without(spans: Iterable[Span], others: Sequence[Span]) -> list[Span]:
    """What is left of times when others are taken out; both are joined."""
    found: list[Span] = []
    for one in spans:
        begin_s = one.begin_s
        for other in _touching(others, one):
            if begin_s < other.begin_s:
                found.append(Span(begin_s, other.begin_s))
            begin_s = other.end_s
        if begin_s < one.end_s:
            found.append(Span(begin_s, one.end_s))
    return found


def _touching(spans: Sequence[Span], window: Span) -> Iterator[Span]:
    """Those of joined times that reach into it."""
    first = bisect_right(spans, window.begin_s, key=lambda one: one.end_s)
    return takewhile(lambda one: one.begin_s < window.end_s, islice(spans, first, None))
