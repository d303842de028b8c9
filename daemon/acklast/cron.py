"""When a schedule fires, and what the run of a firing is called. Pure: the time is passed in.

Moments are in UTC throughout: two times of one zone are compared by what its clocks show, so that the second
pass of an hour that comes twice would not be later than the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import chain, islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

LOOK_AHEAD: Final = 1000
"""How many firings are looked at for two with the same run."""
_DST_DAYS: Final = 800
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_ANY_DAY: Final = datetime(2024, 1, 1, tzinfo=UTC)
_DIRECTIVE: Final = re.compile(r"%(.?)", re.DOTALL)
_DIRECTIVES: Final = "GVuYymdjHMz"
"""Numbers alone: names of days and months would depend on the locale of a process."""


def zone_of(name: str) -> ZoneInfo:
    """
    Raises:
        ValueError: there is no such time zone; says which may be meant.
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # no zone, a folder of zones, or no name that could be one
        close = get_close_matches(name, available_timezones(), n=1)
        meant = f", perhaps {close[0]!r}" if close else ""
        raise ValueError(f'must be a time zone like "Europe/Berlin" or "UTC"{meant}') from None


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone, by the rules of Debian's cron."""

    expression: str
    time_zone: str
    zone: ZoneInfo = field(repr=False, compare=False)

    @classmethod
    def parse(cls, expression: str, zone: ZoneInfo) -> Cron:
        """
        Raises:
            ValueError: it is none, or no moment fits it.
        """
        fields = expression.split()
        if len(fields) != 5:
            raise ValueError('must have five fields: minute, hour, day, month, weekday, as in "0 7 * * MON"')
        try:
            CronSim(expression, _ANY_DAY)
        except CronSimError as error:
            what = str(error)[:1].lower() + str(error)[1:]
            raise ValueError(f'must be a cron expression like "0 7 * * MON": {what}') from None
        cron = cls(" ".join(fields), zone.key, zone)
        if next(cron.after(_ANY_DAY), None) is None:
            raise ValueError("must fit a day that exists: none does within 50 years")
        return cron

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The firings later than ``moment``, in order."""
        times = CronSim(self.expression, moment.astimezone(self.zone))
        last = moment
        while True:
            try:
                found = next(times).astimezone(UTC)
            except (StopIteration, OverflowError):  # nothing for 50 years, or the end of the calendar
                return
            # Within an hour that comes twice the library begins again at the first one.
            if found > last:
                yield found
                last = found

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The firings later than ``after`` and not later than ``until``."""
        return takewhile(lambda moment: moment <= until, self.after(after))

    def is_at(self, moment: datetime) -> bool:
        """Whether it fires at this very moment."""
        return next(self.after(moment - timedelta(seconds=1)), None) == moment

    def local(self, moment: datetime) -> datetime:
        """The moment as the zone's clocks show it."""
        return moment.astimezone(self.zone)

    def remark(self, moment: datetime) -> str:
        """What the zone's clocks do to a firing at ``moment``; mostly nothing."""
        local, times = self.local(moment), CronSim(self.expression, _ANY_DAY)
        if local.minute not in times.minutes or local.hour not in times.hours:
            return "moved: the clock skips its time"
        if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
            if self.is_fixed:
                return "the clock shows it twice: the first time"
            return f"the clock shows it twice: the {'second' if local.fold else 'first'} time"
        return ""

    @property
    def is_fixed(self) -> bool:
        """Whether it names its times of a day, and fires once at each; otherwise it goes by what passes."""
        minute, hour = self.expression.split()[:2]
        return not (minute.startswith("*") or hour.startswith("*"))

    def period(self) -> str:
        """What tells its firings apart, as a format of strftime: the year, month, week, day or minute."""
        _, _, day, _, weekday = self.expression.split()
        single = CronSim(self.expression, _ANY_DAY)
        if not self.is_fixed or len(single.minutes) > 1 or len(single.hours) > 1:
            return "%Y-%m-%dT%H%M%z"
        if weekday != "*":
            return "%G-W%V" if day == "*" and len(single.weekdays) == 1 else "%Y-%m-%d"
        if len(single.days) > 1:
            return "%Y-%m-%d"
        return "%Y-%m" if len(single.months) > 1 else "%Y"


@dataclass(frozen=True, slots=True)
class Twice:
    """Two firings that would be one run."""

    run: str
    first: datetime
    second: datetime


@dataclass(frozen=True, slots=True)
class RunTemplate:
    """The run of a firing: a text with fields of its time as the zone's clocks show it."""

    text: str

    @classmethod
    def parse(cls, text: str) -> RunTemplate:
        """
        Raises:
            ValueError: it is none.
        """
        if not text or not text.isprintable() or text != text.strip() or len(text.encode()) > 100:
            raise ValueError("must be 1 to 100 bytes of printable text")
        for found in _DIRECTIVE.findall(text.replace("%%", "")):
            if not found or found not in _DIRECTIVES:
                known = ", ".join(f"%{one}" for one in _DIRECTIVES)
                raise ValueError(f"must use fields among {known}, and not %{found}")
        return cls(text)

    def run(self, cron: Cron, moment: datetime) -> str:
        """The run of the firing at ``moment``."""
        return cron.local(moment).strftime(self.text)

    def twice(self, cron: Cron, now: datetime) -> Twice | None:
        """Two of the next firings that would be the same run, if there are any."""
        seen: dict[str, datetime] = {}
        for moment in chain(islice(cron.after(now), LOOK_AHEAD), _around_changes(cron, now)):
            first = seen.setdefault(self.run(cron, moment), moment)
            if first != moment:
                return Twice(self.run(cron, moment), first, moment)
        return None


def _around_changes(cron: Cron, now: datetime) -> Iterator[datetime]:
    """The firings of the days on which the zone's clocks are set, for two years."""
    for number in range(_DST_DAYS):
        day = now + number * _DAY
        if cron.local(day).utcoffset() != cron.local(day + _DAY).utcoffset():
            yield from cron.between(day - _HOUR, day + _DAY)
