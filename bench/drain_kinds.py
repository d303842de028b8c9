"""The drains of the backtest: each kind draws its own numbers, and the world in it changes in its own way."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from bench.simulated import LanePlan, Over, World, ramp, steady, steps, waves

RUN: Final = "main"
"""The run that is forecast, in lane ``a``; it has the whole time to itself or not."""


def _drawn(random: Random) -> tuple[float, float]:
    """A rate and for how long the backlog would take at it: minutes to hours."""
    per_s = random.choice((0.3, 1.0, 3.0, 8.0))
    return per_s, random.uniform(10, 120 if per_s < 5 else 40) * 60


def _lane(
    random: Random,
    per_s: float,
    long_s: float,
    *,
    slots: Over | None = None,
    handler_s: Over | None = None,
    fails: Over | None = None,
    bound: bool = False,
) -> LanePlan:
    """One lane with a backlog. ``bound``: its slots come to just this rate, else to three times that."""
    usual_s = random.uniform(1.0, 8.0)
    count = max(2.0, round(per_s * usual_s * (1 if bound else 3)))
    if bound:
        usual_s = count / per_s
    scale = handler_s or steady(1.0)
    part = slots or steady(1.0)
    return LanePlan(
        name="a",
        slots=lambda now: max(1.0, round(count * part(now))),
        handler_s=lambda now: usual_s * scale(now),
        fails=fails or steady(random.choice((0.0, 0.02, 0.1))),
        arrivals=((0.0, RUN, int(per_s * long_s)),),
        usual_handler_s=usual_s,
    )


def _within(
    random: Random, long_s: float, count: int, least_s: float, most_s: float
) -> list[tuple[float, float]]:
    begins = sorted(random.uniform(0, long_s) for _ in range(count))
    return [(begin, begin + random.uniform(least_s, most_s)) for begin in begins]


def quota_steps(random: Random) -> World:
    """The quota in force is lowered and raised: by a downstream's hints, by operators, by what others use."""
    per_s, long_s = _drawn(random)
    moments = sorted(random.uniform(0, long_s * 1.2) for _ in range(random.randint(1, 3)))
    values = {0.0: 1.0} | {at: random.choice((0.5, 0.7, 1.0)) for at in moments}
    return World("quota steps", [_lane(random, per_s, long_s)], per_s, steps(values))


def handler_ramp(random: Random) -> World:
    """Slots are full, and the handler takes longer and longer, or less and less."""
    per_s, long_s = _drawn(random)
    begin = random.uniform(0, long_s / 2)
    grows = ramp(1.0, random.uniform(0.6, 2.5), begin, begin + random.uniform(5, 60) * 60)
    lane = _lane(random, per_s, long_s, handler_s=grows, bound=True)
    return World("handler ramp", [lane], per_s * 4 if random.random() < 0.5 else None, steady(1.0))


def handler_waves(random: Random) -> World:
    """The downstream is now faster and now slower."""
    per_s, long_s = _drawn(random)
    moods = waves(1.0, random.uniform(0.2, 0.5), random.uniform(5, 40) * 60)
    lane = _lane(random, per_s, long_s, handler_s=moods, bound=True)
    return World("handler waves", [lane], None, steady(1.0))


def daemons_change(random: Random) -> World:
    """A daemon comes or goes, and its slots with it."""
    per_s, long_s = _drawn(random)
    moments = [random.uniform(0, long_s) for _ in range(random.randint(1, 2))]
    values = {0.0: 1.0} | {at: random.choice((0.5, 1.0, 1.5)) for at in moments}
    lane = _lane(random, per_s, long_s, slots=steps(values), bound=True)
    return World("daemons come and go", [lane], None, steady(1.0))


def outage(random: Random) -> World:
    """The downstream is down for a while, with a breaker or without."""
    per_s, long_s = _drawn(random)
    down = _within(random, long_s, random.randint(1, 2), 60, 600)
    lane = _lane(random, per_s, long_s, bound=random.random() < 0.5)
    return World("outage", [lane], per_s * 1.5, steady(1.0), down=down, breaker=random.random() < 0.7)


def quiet_times(random: Random) -> World:
    """The downstream answers 429 now and then, and is left alone for as long as it asks."""
    per_s, long_s = _drawn(random)
    quiet = _within(random, long_s, random.randint(2, max(3, int(long_s / 600))), 10, 120)
    return World("429 pauses", [_lane(random, per_s, long_s)], per_s, steady(1.0), quiet=quiet)


def retries(random: Random) -> World:
    """A good part of the attempts fails, later more of it or less."""
    per_s, long_s = _drawn(random)
    at = random.uniform(0, long_s)
    fails = steps({0.0: random.uniform(0.05, 0.4), at: random.uniform(0.05, 0.4)})
    lane = _lane(random, per_s, long_s, fails=fails, bound=random.random() < 0.5)
    return World("retries", [lane], per_s * 1.2, steady(1.0))


def shared_budget(random: Random) -> World:
    """Another lane uses the same budget, for the first part or from some time on."""
    per_s, long_s = _drawn(random)
    other_s = long_s * random.uniform(0.2, 0.8)
    begin = random.choice((0.0, 0.0, random.uniform(0, long_s)))
    usual_s = random.uniform(1.0, 8.0)
    slots = max(2.0, round(per_s * usual_s * 3))
    other = LanePlan(
        "b",
        steady(slots),
        steady(usual_s),
        steady(0.02),
        ((begin, "other", int(per_s * other_s / 2)),),
        usual_s,
    )
    return World("shared budget", [_lane(random, per_s, long_s), other], per_s, steady(1.0))


def in_turns(random: Random) -> World:
    """A lane in which runs take turns, and more runs come while the first is being done."""
    per_s, long_s = _drawn(random)
    first = _lane(random, per_s, long_s)
    [(_, run, jobs)] = first.arrivals
    more = sorted(
        (
            random.choice((0.0, random.uniform(0, long_s))),
            f"more{n}",
            int(jobs * random.uniform(0.05, 0.3)) + 1,
        )
        for n in range(random.randint(1, 3))
    )
    lane = LanePlan(
        "a",
        first.slots,
        first.handler_s,
        first.fails,
        ((0.0, run, jobs), *more),
        first.usual_handler_s,
        in_turns=True,
    )
    return World("runs in turns", [lane], per_s, steady(1.0))


def paused(random: Random) -> World:
    """An operator pauses the lane for a time that is known."""
    per_s, long_s = _drawn(random)
    spans = _within(random, long_s, 1, 120, 1200)
    return World("paused for a while", [_lane(random, per_s, long_s)], per_s, steady(1.0), paused=spans)


def calm(random: Random) -> World:
    """Nothing changes."""
    per_s, long_s = _drawn(random)
    bound = random.random() < 0.5
    return World(
        "calm", [_lane(random, per_s, long_s, bound=bound)], per_s * (3 if bound else 1), steady(1.0)
    )


def just_begun(random: Random) -> World:
    """A drain of minutes: a daemon is started on what waits, and half of the time its handler changes."""
    per_s, long_s = random.choice((1.0, 3.0, 12.0)), random.uniform(0.75, 10) * 60
    begin = random.uniform(2, 300)
    midway = begin + long_s * random.uniform(0.2, 0.8)
    later = steps({0.0: 1.0, midway: random.choice((1.0, random.uniform(0.7, 1.6)))})
    bound = random.random() < 0.7
    lane = _lane(random, per_s, long_s, handler_s=later, bound=bound)
    return World("just begun", [lane], per_s * (3 if bound else 1), steady(1.0), absent=((0.0, begin),))


def restarts(random: Random) -> World:
    """The only daemons are replaced by others, which are there some seconds or a minute later."""
    per_s, long_s = _drawn(random)
    count = random.randint(1, 4)
    begins = sorted(random.uniform(0, long_s) for _ in range(count))
    spans = [(0.0, random.uniform(1, 60))]
    for begin in begins:
        spans.append((max(begin, spans[-1][1] + 60), 0.0))
        spans[-1] = (spans[-1][0], spans[-1][0] + random.uniform(5, 120))
    lane = _lane(random, per_s, long_s, bound=random.random() < 0.5)
    return World("restarts", [lane], per_s * 1.5, steady(1.0), absent=spans)


KINDS: Final[tuple[Callable[[Random], World], ...]] = (
    quota_steps,
    handler_ramp,
    handler_waves,
    daemons_change,
    outage,
    quiet_times,
    retries,
    shared_budget,
    in_turns,
    paused,
    calm,
    just_begun,
    restarts,
)
