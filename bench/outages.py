"""What a daemon does whose collector is killed, hangs, or was never there: how fast it goes, how it ends.

Throughput is that of one daemon in one run, before, during and after each outage, so that it is compared with
itself. The end is that of a daemon each, in turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.progress import Progress
from bench.queues import BenchError
from bench.receivers import Receiver
from bench.servers import Servers
from bench.watched import Ended, Watched, exporting, watched

_BACK_S: Final = 60.0
_POLL_S: Final = 0.1
_LOSES_S: Final = 30.0
"""In so long an export has failed: it is waited for 10 s, and what one sent may be read by who comes back."""
_AWAY_S: Final = 6.0
"""So long a collector has been away when a daemon is ended: an export is under way by then, or waits."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way in which a receiver goes away, and comes back."""

    name: str
    leave: Callable[[Receiver], None]
    back: Callable[[Receiver], None]


KILLED: Final = Kind("killed", lambda receiver: receiver.kill(), lambda receiver: receiver.start())
HUNG: Final = Kind("hung", lambda receiver: receiver.pause(), lambda receiver: receiver.resume())


@dataclass(frozen=True, slots=True)
class Outage:
    """Jobs a second before, while the receiver was away, and after; and what was lost meanwhile."""

    kind: str
    before: float
    during: float
    after: float
    lost: float

    @property
    def ratio(self) -> float:
        """Of the rate with a receiver that runs. Pure."""
        return self.during / ((self.before + self.after) / 2)


async def endure(
    receiver: Receiver, part: float, away_s: float, turn_s: float, servers: Servers, say: Progress
) -> list[Outage]:
    """One daemon through an outage of each kind, ``away_s`` long, with ``turn_s`` around each.

    Raises:
        BenchError: something took no part: the receiver got nothing, or the outage was none.
    """
    found = []
    async with watched("outages", exporting(receiver.env(), part), servers) as daemon:
        await _hears(receiver, "before the first outage")
        before = await daemon.rate(turn_s)
        for kind in (KILLED, HUNG):
            lost = await daemon.lost()
            during = await _away(receiver, kind, daemon, away_s)
            lost = await daemon.lost() - lost
            kind.back(receiver)
            await _hears(receiver, f"after it was {kind.name}")
            after = await daemon.rate(turn_s)
            if not lost and away_s >= _LOSES_S:
                raise BenchError(f"the collector was {kind.name}, and the daemon lost nothing by it")
            found.append(Outage(kind.name, before, during, after, lost))
            say.step(f"collector {kind.name}: {during:,.0f} jobs/s, {before:,.0f} before, {after:,.0f} after")
            before = after
        await daemon.end()
    return found


async def _away(receiver: Receiver, kind: Kind, daemon: Watched, seconds: float) -> float:
    kind.leave(receiver)
    taken = receiver.taken()
    rate = await daemon.rate(seconds)
    if receiver.taken() != taken:
        raise BenchError(f"the collector was {kind.name}, and took something in")
    return rate


async def _hears(receiver: Receiver, when: str) -> None:
    """Wait until it takes spans and metrics in.

    Raises:
        BenchError: it does not.
    """
    before, until = receiver.taken(), time.monotonic() + _BACK_S
    while not ((now := receiver.taken().since(before)).spans and now.points):
        if time.monotonic() > until:
            raise BenchError(f"{when} the collector got {now.spans} spans and {now.points} data points")
        await asyncio.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Ending:
    """A daemon that is ended under load. ``kind``: how its receiver is away by then, or None."""

    name: str
    env: Mapping[str, str]
    kind: Kind | None = None


async def end(ending: Ending, number: int, receiver: Receiver, servers: Servers) -> Ended:
    """One daemon, under load until its end; the receiver runs again after it."""
    async with watched(f"ending-{ending.name}-{number}", ending.env, servers) as daemon:
        if ending.kind is not None:
            ending.kind.leave(receiver)
        try:
            await asyncio.sleep(_AWAY_S)
            return await daemon.end()
        finally:
            if ending.kind is not None:
                ending.kind.back(receiver)


async def endings(
    wanted: Sequence[Ending], rounds: int, receiver: Receiver, servers: Servers, say: Progress
) -> dict[str, list[Ended]]:
    """Each of them, ``rounds`` times, in turns."""
    found: dict[str, list[Ended]] = {ending.name: [] for ending in wanted}
    for number in range(rounds):
        start = number % len(wanted)
        for ending in [*wanted[start:], *wanted[:start]]:
            ended = await end(ending, number, receiver, servers)
            found[ending.name].append(ended)
            say.step(f"{ending.name}: drained in {ended.drain_s:.2f} s, gone after {ended.exit_s:.2f} s")
    return found
