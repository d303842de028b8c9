"""The breaker of a budget at work.

While it is open the budget is paused, and everybody waits there. Then one goes to see, and who comes by
meanwhile waits here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from acklast.pacing.breaker import Breaker, State
from acklast.pacing.slots import Queue
from acklast.policy import BreakerRules
from acklast.telemetry.events import Emitter


def circuit_of(budget: str, rules: BreakerRules, emitter: Emitter) -> Circuit:
    """The circuit of a budget, which tells the log when it shuts and opens."""

    def opened(breaker: Breaker, pause_s: float) -> None:
        emitter.notice(
            "breaker.opened", "warning", budget=budget, failures=breaker.failures, pause_s=round(pause_s, 3)
        )

    return Circuit(rules, opened=opened, closed=lambda: emitter.notice("breaker.closed", budget=budget))


class Circuit:
    """A breaker and who waits for it. ``opened`` and ``closed`` are told what happened, for the log."""

    def __init__(
        self,
        rules: BreakerRules,
        *,
        opened: Callable[[Breaker, float], None] = lambda breaker, pause_s: None,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        self._breaker = Breaker(rules)
        self._opened = opened
        self._closed = closed
        self._queue = Queue()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def state(self) -> State:
        return self._breaker.state(self._now())

    def admits(self) -> bool:
        """Whether a job may start now."""
        return self._breaker.admits(self._now())

    def start(self) -> bool:
        """A job starts that was admitted; true where it is the probe. ``leave`` must follow."""
        before, self._breaker = self._breaker, self._breaker.started(self._now())
        return self._breaker is not before

    async def moved(self) -> None:
        """Wait until it may be otherwise: a probe is due, or is over.

        Raises:
            Draining: nothing more is to be started.
        """
        await self._queue.join()

    def leave(self, *, probe: bool, up: bool | None) -> float | None:
        """A job is over: it met a downstream that is up, or down, or did not get so far.

        Gives the seconds for which nobody may start now, where this very job made it so.
        """
        if up is None:
            if probe:
                self._breaker = self._breaker.gave_up()
                self._wake()
            return None
        if up:
            self._close()
            return None
        before, self._breaker = self._breaker, self._breaker.failed(self._now(), probe=probe)
        if self._breaker.opened == before.opened:
            return None
        pause_s = self._breaker.until_s - self._now()
        self._timer = asyncio.get_running_loop().call_at(self._breaker.until_s, self._wake)
        self._opened(self._breaker, pause_s)
        self._wake()  # who waited for the probe waits for the budget now, like everybody
        return pause_s

    def close(self) -> None:
        """Send home whoever waits, now and from now on."""
        self._queue.close()
        if self._timer:
            self._timer.cancel()

    def _close(self) -> None:
        before, self._breaker = self._breaker, self._breaker.succeeded()
        if before.opened:
            self._closed()
            self._wake()

    def _wake(self) -> None:
        while self._queue.admit():
            pass

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
