"""Whether the ledger answers: said once when it stops, and once when it does again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from acklast.errors import LedgerUnavailable
from acklast.telemetry.events import Emitter

_STALE_S: Final = 60.0
"""Whoever asked in vain so long ago has not asked again: whether it would be answered now is not known."""
_GAP_S: Final = 5.0
_GAP_CAP_S: Final = 600.0
_STEADY_S: Final = 30.0
"""A ledger that comes and goes says so again after ``_GAP_S``, then after twice as long, until it has
answered for this long."""


class LedgerWatch:
    """Hears from all who ask the ledger, and has one word for them."""

    def __init__(
        self,
        emitter: Emitter,
        say: Callable[[str], None] = lambda why: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``say`` is told why the ledger does not answer, and nothing once it does."""
        self._emitter = emitter
        self._say = say
        self._clock = clock
        self._missed: dict[str, float] = {}
        self._since = 0.0
        self._back_at = self._said_at = float("-inf")
        self._gap_s = 0.0
        self._said = False
        self.away = False
        """Whether somebody asks in vain."""

    def missed(self, who: str, error: LedgerUnavailable) -> None:
        """``who`` (a lane, the lease) asked in vain, and will ask again."""
        now = self._clock()
        self._missed[who] = now
        if not self.away:
            self.away, self._since = True, now
            if now - self._back_at >= _STEADY_S:
                self._gap_s = 0.0
        if not self._said and now - self._said_at >= self._gap_s:
            self._said, self._said_at = True, now
            self._gap_s = min(max(_GAP_S, 2 * self._gap_s), _GAP_CAP_S)
            self._emitter.notice("ledger.unavailable", "warning", error=error.what, asked_by=who)
            self._say(error.what)

    def answered(self, who: str) -> None:
        """``who`` was answered."""
        if not self.away:
            return
        now = self._clock()
        self._missed = {name: at for name, at in self._missed.items() if name != who and now - at < _STALE_S}
        if self._missed:
            return
        self.away, self._back_at = False, now
        if self._said:
            self._said = False
            self._emitter.notice("ledger.back", away_s=round(now - self._since, 3))
            self._say("")
