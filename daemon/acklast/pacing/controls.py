"""What is in force for a lane or a budget: its configuration, and what operators ask. Pure.

Operators may ask for less than what is configured and never for more: whatever a control says, the fewest
calls and the longest period of both count. So a daemon that is configured with less than the one on which the
command was checked keeps its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from acklast.config.quota import Quota
from acklast.errors import AcklastError, Exit
from acklast.ledger.controls import Control, Kind, Target


class Refused(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """What is asked for cannot be granted."""

    exit = Exit.USAGE


@dataclass(frozen=True, slots=True)
class Controls:
    """What was read from the ledger, and when, on a monotonic clock."""

    items: tuple[Control, ...] = ()
    read_at: float = 0.0
    heard: int = 0

    def in_force(self, target: Target, name: str, kind: Kind, now: float) -> Control | None:
        """The control of this kind, unless its time is up."""
        return next((one for one in self._living(now) if _is(one, target, name, kind)), None)

    def pause(self, lane: str, budget: str | None, now: float) -> Control | None:
        """What pauses the lane; of its own and its budget's the one that lasts longer."""
        own = self.in_force(Target.LANE, lane, Kind.PAUSE, now)
        shared = self.in_force(Target.BUDGET, budget, Kind.PAUSE, now) if budget is not None else None
        if own is None or shared is None:
            return own or shared
        return max(own, shared, key=_lasts)

    def quota(self, budget: str, configured: Quota, now: float) -> Quota:
        """What the budget may use."""
        control = self.in_force(Target.BUDGET, budget, Kind.QUOTA, now)
        if control is None or control.amount is None or control.period_s is None:
            return configured
        return Quota(min(configured.count, control.amount), max(configured.period_s, control.period_s))

    def concurrency(self, target: Target, name: str, configured: int, now: float) -> int:
        """How many may run at once."""
        control = self.in_force(target, name, Kind.CONCURRENCY, now)
        return configured if control is None or control.amount is None else min(configured, control.amount)

    def next_end_s(self, now: float) -> float | None:
        """Seconds until the next control that is in force is over; None where none ends by itself."""
        ends = [self.read_at + one.left_s - now for one in self._living(now) if one.left_s is not None]
        return min(ends, default=None)

    def _living(self, now: float) -> Iterator[Control]:
        passed_s = now - self.read_at
        return (one for one in self.items if one.left_s is None or one.left_s > passed_s)


def _is(control: Control, target: Target, name: str, kind: Kind) -> bool:
    return (control.target, control.name, control.kind) == (target, name, kind)


def _lasts(control: Control) -> float:
    return float("inf") if control.left_s is None else control.left_s


# --- what may be asked for ------------------------------------------------------------------------------


def lower_quota(budget: str, configured: Quota, asked: Quota) -> Quota:
    """``asked``, where it keeps the configured quota in every window.

    Raises:
        Refused: it does not, or nobody could tell; the error names the most that may be asked for.
    """
    if asked.period_s < configured.period_s:
        # Within a period there is no telling when the calls come: it can only be kept in the longer one.
        raise Refused(
            f"budget {budget!r} counts in periods of {configured.period_s:g} s, which {asked} would cut",
            f"Ask for at most {configured}, in periods of {configured.period_s:g} s or longer",
        )
    if asked.count > configured.count:
        raise _too_much(budget, configured, str(asked))
    return asked


def lower_rate(budget: str, configured: Quota, rate_per_s: float) -> Quota:
    """The quota that comes to just this rate and keeps the configured one.

    Raises:
        Refused: the rate is above the configured one.
    """
    most = configured.count / configured.period_s
    if rate_per_s > most * (1 + 1e-9):
        raise _too_much(budget, configured, f"{rate_per_s:g}/s")
    # No more calls than the rate has in one period, rounded up, and a period longer by as much.
    count = min(configured.count, max(1, ceil(rate_per_s * configured.period_s - 1e-9)))
    return Quota(count, max(configured.period_s, count / rate_per_s))


def _too_much(budget: str, configured: Quota, asked: str) -> Refused:
    rate = configured.count / configured.period_s
    return Refused(
        f"{asked} is more than the configuration allows budget {budget!r}",
        f"The most is {configured} ({rate:g}/s); a higher quota needs the configuration of every daemon",
    )


def lower_count(what: str, configured: int | None, asked: int) -> int:
    """``asked`` handlers or calls at once, where that is not more than what is configured.

    Raises:
        Refused: it is more, or nothing is configured that could be lowered.
    """
    if configured is None:
        raise Refused(
            f"{what} has no concurrency in the configuration, so there is nothing to lower",
            "Lower the concurrency of its lanes, or its quota",
        )
    if asked > configured:
        raise Refused(
            f"{asked} at once is more than the configuration allows {what}",
            f"The most is {configured}; a higher concurrency needs the configuration of every daemon",
        )
    return asked
