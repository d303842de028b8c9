"""Forecasts of drains whose end is known: how often the band held, how far off the middle was.

Drains are simulated in virtual time (``bench/simulated.py``), each with numbers of its own and a world that
changes while it goes. When a tenth, three tenths and so on of the run are done, the forecast is made from
what the ledger and the daemons would say at that moment, and held against what then happened.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from random import Random
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from acklast.outlook.cast import BAND, Basis, outlook
from acklast.outlook.pace import RULES, Rules
from bench.drain_kinds import KINDS, RUN
from bench.simulated import Fleet

PARTS: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
TUNED_ON: Final = 100_000
"""Drains from this number on are those that the estimator's numbers were found by; reports are of others."""
_LONGEST_S: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One forecast, and what came of it; seconds from the forecast."""

    number: int
    kind: str
    part: float
    likely_s: float | None
    low_s: float | None
    high_s: float | None
    actual_s: float
    basis: Basis
    named: str
    true: str

    @property
    def held(self) -> bool:
        assert self.low_s is not None
        assert self.high_s is not None
        return self.low_s <= self.actual_s <= self.high_s

    @property
    def error(self) -> float:
        """How far off the middle was, as a part of what was left."""
        assert self.likely_s is not None
        return (self.likely_s - self.actual_s) / max(self.actual_s, 1.0)


def drain(number: int, rules: Rules = RULES) -> list[Trial]:
    """One drain, by its number alone, and its forecasts."""
    random = Random(number)  # noqa: S311 - the same drain for the same number
    world = KINDS[number % len(KINDS)](random)
    fleet = Fleet(world, random)
    fleet.step()
    whole = fleet.left("a", RUN)
    asked, begun = list(PARTS), []
    while RUN not in fleet.lanes["a"].ends:
        fleet.step()
        if fleet.now > _LONGEST_S:
            raise RuntimeError(f"drain {number} ({world.kind}) does not end")
        if asked and fleet.left("a", RUN) <= whole * (1 - asked[0]):
            begun.append(_forecast(fleet, asked.pop(0), rules))
    end = fleet.lanes["a"].ends[RUN]
    return [Trial(number, world.kind, part, *cast, end - at, *more) for part, at, cast, more in begun]


def _forecast(
    fleet: Fleet, part: float, rules: Rules
) -> tuple[float, float, tuple[float | None, float | None, float | None], tuple[Basis, str, str]]:
    found = outlook(fleet.facts(), rules)
    [run] = [one for one in found.runs if one.run == RUN]
    finish = run.finish
    named, true = run.binding.constraint.value, fleet.true_constraint("a").value
    return part, fleet.now, (finish.likely_s, finish.low_s, finish.high_s), (finish.basis, named, true)


def drains(numbers: Iterable[int], rules: Rules = RULES, workers: int = 2) -> list[Trial]:
    """Many of them, in two processes."""
    if workers == 1:
        return [trial for number in numbers for trial in drain(number, rules)]
    with ProcessPoolExecutor(workers) as pool:
        found = pool.map(drain, numbers, repeat(rules), chunksize=4)
        return [trial for trials in found for trial in trials]


# --- the account ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Account:
    """Forecasts together. Parts are of 1; ``unknown`` had no finish to hold against anything."""

    forecasts: int
    unknown: int
    held: float
    early: float
    """The job ended before the band."""
    late: float
    off: float
    """The median of how far off the middle was, either way."""
    bias: float
    """The median error: negative, it said too early."""
    wide: float
    """The median of the band's width over what was left."""
    named: float
    """The constraint that was named was the one that held it back."""


def account(trials: Sequence[Trial]) -> Account:
    """
    Raises:
        ValueError: there are none.
    """
    if not trials:
        raise ValueError("no forecasts")
    known = [one for one in trials if one.likely_s is not None and one.high_s is not None]
    count = max(1, len(known))
    return Account(
        forecasts=len(trials),
        unknown=len(trials) - len(known),
        held=sum(one.held for one in known) / count,
        early=sum(one.actual_s < (one.low_s or 0) for one in known) / count,
        late=sum(one.actual_s > (one.high_s or 0) for one in known) / count,
        off=median([abs(one.error) for one in known] or [0.0]),
        bias=median([one.error for one in known] or [0.0]),
        wide=median(
            [((one.high_s or 0) - (one.low_s or 0)) / max(one.actual_s, 1.0) for one in known] or [0.0]
        ),
        named=sum(one.named == one.true for one in trials) / len(trials),
    )


_COLUMNS: Final = (
    "",
    "forecasts",
    "unknown",
    "band held",
    "ended early",
    "late",
    "off (median)",
    "bias",
    "band's width",
    "constraint right",
)


def rows(trials: Sequence[Trial]) -> list[tuple[str, ...]]:
    """The table: by how much was done, by kind of drain, and all."""
    groups = [(f"{part:.0%} done", [one for one in trials if one.part == part]) for part in PARTS]
    kinds = dict.fromkeys(one.kind for one in trials)
    groups += [(kind, [one for one in trials if one.kind == kind]) for kind in kinds]
    groups.append(("all", list(trials)))
    return [_row(name, account(group)) for name, group in groups if group]


def _row(name: str, one: Account) -> tuple[str, ...]:
    percents = (one.held, one.early, one.late, one.off, one.bias, one.wide, one.named)
    return name, str(one.forecasts), str(one.unknown), *(f"{value:.0%}" for value in percents)


def mistaken(trials: Sequence[Trial]) -> list[tuple[str, str, int]]:
    """Constraints that were named, those that were true, and how often, the most frequent first."""
    pairs = Counter((one.named, one.true) for one in trials if one.named != one.true)
    return [(named, true, count) for (named, true), count in pairs.most_common()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.backtest", description=__doc__)
    parser.add_argument("--drains", type=int, default=520, help="how many to simulate")
    parser.add_argument(
        "--first",
        type=int,
        default=1000,
        help=f"the first one's number; from {TUNED_ON:,} on are those it was tuned on",
    )
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    trials = drains(range(given.first, given.first + given.drains), workers=given.workers)
    console = Console()
    table = Table(*_COLUMNS, title=f"{given.drains} drains, a band of {BAND:.0%}")
    for row in rows(trials):
        table.add_row(*row)
    console.print(table)
    for named, true, count in mistaken(trials)[:8]:
        console.print(f"named {named} where it was {true}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
