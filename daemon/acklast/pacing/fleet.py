"""Who should hold how many permits of a budget: pure, and the same answer in every daemon that asks.

Nobody takes a permit from another. Each daemon works out everybody's part from what all have told, takes from
the pool what its own part lacks, and lets go what others lack and it has too much of, once it is cool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

READY_S: Final = 5.0
"""A daemon keeps free permits for so much time ahead. Those beyond stay in the pool, where no crash heats
them."""
FLOOR: Final = 50
"""A daemon without work keeps one permit to be ready with, where an equal share is as large as this."""


@dataclass(frozen=True, slots=True)
class Want:
    """One living daemon: what it holds, and what it could use."""

    session: int
    held: int
    needs: int
    """Permits out or cooling, and starts that wait for one."""
    waited_s: float = 0.0
    """How long it has needed some and had none."""
    fresh: bool = False
    """It was given its first permits and has not used one yet: taking them back at once would help nobody."""


@dataclass(frozen=True, slots=True)
class Share:
    """A daemon's part: what it needs and gets, and what it may keep ready beside that."""

    due: int
    target: int


def needs(*, held: int, busy: int, waiting: int, backlog: int) -> int:
    """What a daemon can use: what is in use and what waits; the jobs in its queues while it takes none in.

    Where nothing waits, a little more than is in use: the next moment may need it.
    """
    if waiting:
        return busy + waiting
    if held == 0:
        return backlog
    return min(held, busy + max(1, busy // 10)) if busy else 0


def ready(quota: int, daemons: int, period_s: float) -> int:
    """How many free permits a daemon keeps for what comes next."""
    even = quota / max(1, daemons)
    return max(1, ceil(even * min(1.0, READY_S / period_s) if period_s > 0 else even))


def level(amount: int, caps: Mapping[int, int], order: Sequence[int]) -> dict[int, int]:
    """Share ``amount`` so that the least share is as large as can be; nobody gets more than its cap.

    What cannot be split evenly goes to the first of ``order``.
    """
    given = dict.fromkeys(caps, 0)
    open_ = [who for who in order if caps[who] > 0]
    while open_ and amount >= len(open_):
        step = min(amount // len(open_), min(caps[who] - given[who] for who in open_))
        for who in open_:
            given[who] += step
        amount -= step * len(open_)
        open_ = [who for who in open_ if given[who] < caps[who]]
    for who in open_[:amount]:
        given[who] += 1
    return given


def _by_holding(want: Want) -> tuple[int, int]:
    """Where it makes no other difference, a permit stays where it is."""
    return (-want.held, want.session)


def _by_turn(want: Want) -> tuple[int, float, int]:
    """Fewer permits than daemons that need one: who has had its turn goes behind those that wait, the longest
    first.
    """
    turn = 0 if want.fresh else 1 if want.held == 0 else 2
    return (turn, -want.waited_s, want.session)


def shares(quota: int, wants: Sequence[Want], period_s: float) -> dict[int, Share]:
    """Everybody's part of ``quota`` permits."""
    floor = quota // (FLOOR * max(1, len(wants)))
    caps = {want.session: max(want.needs, floor) for want in wants}
    needy = sum(cap > 0 for cap in caps.values())
    first: Callable[[Want], tuple[float, ...]] = _by_turn if needy > quota else _by_holding
    due = level(max(0, quota), caps, [want.session for want in sorted(wants, key=first)])
    spare = ready(quota, len(wants), period_s)
    extra = level(
        max(0, quota - sum(due.values())),
        dict.fromkeys(caps, spare),
        [want.session for want in sorted(wants, key=_by_holding)],
    )
    return {who: Share(due[who], due[who] + extra[who]) for who in caps}


@dataclass(frozen=True, slots=True)
class Step:
    """What a daemon does about its own part."""

    keep: int
    """Hold so many at most: what is above leaves as it cools."""
    take: int
    """Take so many from the pool."""
    short: bool
    """Others have what this one lacks: they are to be told."""


def step(me: int, quota: int, wants: Sequence[Want], pool: int, period_s: float) -> Step:
    """The next move of daemon ``me``. ``pool``: permits that nobody holds; negative where the quota has
    shrunk.
    """
    parts = shares(quota, wants, period_s)
    held = {want.session: want.held for want in wants}
    mine = parts[me]
    lack = sum(max(0, part.target - held[who]) for who, part in parts.items() if _lacks(part, held[who]))
    others = lack - (max(0, mine.target - held[me]) if _lacks(mine, held[me]) else 0)
    keep = held[me]
    if others > max(0, pool) or pool < 0:
        keep = min(keep, mine.target)
    elif period_s > READY_S and held[me] - mine.target > ready(quota, len(wants), period_s):
        keep = mine.target
    take = max(0, min(mine.target - held[me], pool))
    over = any(held[who] > part.target for who, part in parts.items() if who != me)
    return Step(keep, take, short=over and _lacks(mine, held[me] + take))


def _lacks(part: Share, held: int) -> bool:
    """Whether others should give: for what is needed, or so that a daemon can serve its lanes at all."""
    return held < part.due or (held == 0 and part.target > 0)
