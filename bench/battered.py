"""Daemons that are not left in peace: killed, stopped, started again, their clocks and the ledger's set."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.children import Child
from bench.clocks import WallClock
from bench.queues import BenchError

_ROOT: Final = Path(__file__).parents[1]
_STEP_S: Final = 2.0
_STARTS_S: Final = 60.0
_POLL_S: Final = 0.1


class Battered:
    """``count`` daemons on one configuration. ``clocks``: whose may be set beside theirs."""

    def __init__(
        self,
        config: Path,
        count: int,
        env: Mapping[str, str],
        chance: random.Random,
        clocks: Mapping[str, WallClock],
    ) -> None:
        self._config = config
        self._env = env
        self._chance = chance
        self._own = [WallClock(config.parent / f"clock-{number}") for number in range(count)]
        self._clocks = {**clocks, **{f"daemon {number}": clock for number, clock in enumerate(self._own)}}
        self._children: list[Child | None] = [None] * count
        self._starts = 0
        self.happened: Counter[str] = Counter()

    async def start(self) -> None:
        """Start all, and wait until each is ready."""
        for number in range(len(self._children)):
            self._launch(number)
        async with asyncio.timeout(_STARTS_S):
            while not all(child and "ready" in child.last_lines(100_000) for child in self._children):
                self.look()
                await asyncio.sleep(_POLL_S)

    def look(self) -> None:
        """See that nobody has ended by himself.

        Raises:
            BenchError: somebody has; with his last words.
        """
        for child in self._children:
            if child is not None and child.ended:
                raise BenchError(f"a daemon has ended by itself\n{child.last_lines()}")

    async def batter(self, every_s: float) -> None:
        """Go on for as long as this is not cancelled."""
        while True:
            await asyncio.sleep(every_s * self._chance.uniform(0.5, 1.5))
            acts = [self._kill, self._kill_and_leave, self._restart, self._set_a_clock, self._set_a_clock]
            await self._chance.choice(acts)()

    async def stop(self) -> None:
        for number in range(len(self._children)):
            await self._end(number, signal.SIGTERM)

    # --- acts ---------------------------------------------------------------------------------------

    async def _kill(self) -> None:
        number = self._anyone()
        await self._end(number, signal.SIGKILL)
        self._launch(number)
        self.happened["killed, started again at once"] += 1

    async def _kill_and_leave(self) -> None:
        number = self._anyone()
        await self._end(number, signal.SIGKILL)
        await asyncio.sleep(self._chance.uniform(1, 15))
        self._launch(number)
        self.happened["killed, started again later"] += 1

    async def _restart(self) -> None:
        number = self._anyone()
        await self._end(number, signal.SIGTERM)
        self._launch(number)
        self.happened["stopped and started again"] += 1

    async def _set_a_clock(self) -> None:
        name = self._chance.choice(list(self._clocks))
        clock = self._clocks[name]
        clock.set(0.0 if clock.offset_s else self._chance.choice([_STEP_S, -_STEP_S]))
        self.happened[f"clock of {name.split()[0]} set by {_STEP_S:g} s"] += 1

    # --- processes ----------------------------------------------------------------------------------

    def _anyone(self) -> int:
        return self._chance.randrange(len(self._children))

    def _launch(self, number: int) -> None:
        self._starts += 1
        command = [sys.executable, "-m", "acklast", "run", "--config", str(self._config)]
        log = self._config.parent / f"{number}-{self._starts}.log"
        env = {**self._env, **self._own[number].environment()}
        self._children[number] = Child([*command, "--instance", f"proof-{number}"], env, _ROOT, log)

    async def _end(self, number: int, how: signal.Signals) -> None:
        child, self._children[number] = self._children[number], None
        if child is None:
            return
        if how is signal.SIGKILL:
            os.killpg(child.pid, how)
        await asyncio.to_thread(child.stop)
