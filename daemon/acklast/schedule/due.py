"""What fires now, and what is skipped, after however long nobody looked. Pure: the time is passed in."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never

from acklast.config.schedules import CatchUp, Schedule
from acklast.cron import Cron
from acklast.ledger.schedules import Skipped

IN_TIME: Final = timedelta(minutes=1)
"""A firing that is no later than this is not one to be caught up."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What becomes of firings that are late. ``limit`` is for ``all``; ``lasts`` is how long a firing's jobs
    may still start."""

    catch_up: CatchUp
    limit: int = 100
    lasts: timedelta | None = None

    @classmethod
    def of(cls, schedule: Schedule) -> Rules:
        lasts = None if schedule.deadline_s is None else timedelta(seconds=schedule.deadline_s)
        return cls(schedule.catch_up, schedule.catch_up_limit, lasts)

    @property
    def most(self) -> int:
        """How many firings can come of one look."""
        match self.catch_up:
            case CatchUp.LATEST:
                return 1
            case CatchUp.ALL:
                return self.limit
            case CatchUp.SKIP:
                return 2  # of every minute, both ends of the minute that is in time
            case _:
                assert_never(self.catch_up)

    def fires(self, moment: datetime, now: datetime) -> bool:
        """Whether a firing whose time came at ``moment`` may still fire."""
        if self.lasts is not None and moment + self.lasts <= now:
            return False  # every job would be too late
        return self.catch_up is not CatchUp.SKIP or now - moment <= IN_TIME


@dataclass(frozen=True, slots=True)
class Due:
    """What is to fire, in order, and what is not."""

    fire: tuple[datetime, ...] = ()
    skipped: Skipped | None = None


def due(now: datetime, last: datetime, cron: Cron, rules: Rules) -> Due:
    """What becomes of the firings later than ``last`` and not later than ``now``."""
    kept: deque[datetime] = deque(maxlen=rules.most)
    left = list[datetime]()  # first and last, and their number beside
    count = 0
    for moment in cron.between(last, now):
        if len(kept) == rules.most:
            count, left = count + 1, [*left[:1], kept[0]]
        kept.append(moment)
    fire = tuple(moment for moment in kept if rules.fires(moment, now))
    late = [moment for moment in kept if moment not in fire]
    if late:
        count, left = count + len(late), [*left[:1], *late]
    return Due(fire, Skipped(count, left[0], left[-1]) if left else None)
