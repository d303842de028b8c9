"""A drain while servers are away: it ends in time and says what it left, and the next daemon finishes all."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import pytest

from acklast.drain import SETTLE_S
from acklast.errors import Exit
from acklast.ledger.api import State
from acklast.pacing.prefetch import prefetch_for
from harness import Broker, eventually
from harness.daemon import Daemon
from harness.proxy import Away
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

ENDS = [f"ends-{n}" for n in range(3)]
"""Their handlers end during the drain, with their effects."""
CUT = ["cut-0", "cut-1"]
"""Theirs are cut at its deadline."""
BUFFERED = [f"waits-{n}" for n in range(prefetch_for(1000, 13, 0.0, None) - 5)]
"""Theirs never start."""
FIVE_AT_ONCE = """
[budgets.five]
quota = "1000 per 1 s"
concurrency = 5
"""
DEADLINE_S = 1.0
CLOSE_S = 10.0
"""What the manager would still grant, and a busy machine may take."""


@dataclass(frozen=True, slots=True)
class Case:
    """Which servers are away, and how."""

    away: tuple[str, ...]
    hole: bool

    def __str__(self) -> str:
        return f"{'-and-'.join(self.away)}-{'silent' if self.hole else 'refusing'}"

    def expected(self) -> dict[str, Any]:
        """The receipt's counts. What is written into a hole looks as if it were sent."""
        ledger, broker = "ledger" in self.away, "broker" in self.away
        settles = not broker or self.hole
        return {
            "completed": len(ENDS) if settles and not ledger else 0,
            "given_back": len(BUFFERED) if settles else 0,
            "unknown": 0 if ledger else len(CUT),
            "left": (len(ENDS) if ledger or not settles else 0)
            + (len(CUT) if ledger else 0)
            + (0 if settles else len(BUFFERED)),
            "cut": True,
        }


CASES = [Case(*case) for case in product((("ledger",), ("broker",), ("ledger", "broker")), (False, True))]
QUICK = {"broker-refusing"}


class Scene:
    """A daemon at work whose servers can be away."""

    def __init__(self, place: Site, servers: dict[str, Away]) -> None:
        self.place, self._servers = place, servers

    async def env(self) -> dict[str, str]:
        here = {name: await server.here() for name, server in self._servers.items()}
        return {"ACKLAST_BROKER_URL": here["broker"], "ACKLAST_LEDGER_DSN": here["ledger"]}

    async def at_work(self, daemon: Daemon) -> None:
        jobs = [scripted(key, {"do": "wait", "gate": "go"}) for key in ENDS]
        jobs += [scripted(key, {"do": "wait", "gate": "never"}, "done") for key in CUT]
        jobs += [scripted(key, "done") for key in BUFFERED]
        await self.place.promise(jobs)
        await self.place.publish(*jobs)
        await eventually(lambda: len(self.place.log.calls()) == len(ENDS + CUT), what="5 run")
        await eventually(self.place.is_drained, what="the others are held")

    async def drains(self, daemon: Daemon, away: tuple[str, ...]) -> tuple[dict[str, Any], float]:
        """The receipt, and the seconds from the signal to the end."""
        await asyncio.gather(*(self._servers[name].gone() for name in away))
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        await daemon.says("drain.started")
        self.place.open_gate("go")
        assert await daemon.ended() == Exit.CUT
        return daemon.log()[-1], time.monotonic() - began

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))


@pytest.fixture
def receiver() -> str:
    """What reads the deliveries has little to do with it."""
    return "bulk"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=() if str(case) in QUICK else pytest.mark.soak)
        for case in CASES
    ],
)
async def test_a_drain_while_servers_are_away(
    new_site: NewSite, broker: Broker, ledger_dsn: str, case: Case
) -> None:
    servers = {"broker": Away(broker.url, hole=case.hole), "ledger": Away(ledger_dsn, hole=case.hole)}
    async with new_site(drain_s=DEADLINE_S, concurrency=13, budget="five", more=FIVE_AT_ONCE) as place:
        scene = Scene(place, servers)
        with place.daemon(env=await scene.env()) as daemon:
            await scene.at_work(daemon)
            receipt, seconds = await scene.drains(daemon, case.away)
        await scene.close()
        assert receipt["event"] == "drain.receipt"
        assert {name: receipt[name] for name in case.expected()} == case.expected()
        assert receipt["seconds"] < DEADLINE_S + SETTLE_S + 2
        assert seconds < DEADLINE_S + SETTLE_S + CLOSE_S
        await _successor_finishes(place, ledger_away="ledger" in case.away)


async def _successor_finishes(place: Site, *, ledger_away: bool) -> None:
    """All is done; nothing has a second effect but what ended while nobody could be told of it."""
    with place.daemon() as successor:
        await place.quiet(60)
        assert await successor.drained() == Exit.OK
    assert (await place.run()).counts[State.DONE] == len(ENDS + CUT + BUFFERED)
    for key in BUFFERED:
        assert [(call.attempt, call.ambiguous) for call in place.log.calls(key)] == [(1, False)]
    for key in CUT:
        assert [call.ambiguous for call in place.log.calls(key)] == [False, True]
        assert len(place.log.effects(key)) == 1
    for key in ENDS:
        assert [call.ambiguous for call in place.log.calls(key)] == [False] + [True] * ledger_away
