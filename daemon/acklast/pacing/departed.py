"""When the permits of ended sessions are cool, though the ledger's clock may be set meanwhile. Pure: whoever
asks brings the time, a monotonic one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from acklast.ledger.budgets import Account, Holding

STEP_S: Final = 2.5
"""By how much the ledger's clock may be set forward in one go: its word on an end counts so much later."""


class Departed:
    """The ended sessions of one budget, as one daemon has seen them.

    The ledger's clock says when a session ended, and it may have been set since. It is believed with
    ``STEP_S`` to spare. Where the end was proved (no lease that merely ran out, which that clock decides too)
    our own clock may say so sooner: the calls had ended when the end was first seen here.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}

    def cooled(self, account: Account, now: float) -> Account:
        """The account, with the times that are left as they can be relied on."""
        over = [holding for holding in account.holdings if not holding.live]
        self._seen = {holding.session: self._seen.get(holding.session, now) for holding in over}
        if not over:
            return account
        return replace(account, holdings=tuple(self._left(holding, now) for holding in account.holdings))

    def _left(self, holding: Holding, now: float) -> Holding:
        if holding.live:
            return holding
        left_s = holding.hot_left_s + STEP_S
        if holding.proved:
            left_s = min(left_s, self._seen[holding.session] + holding.hot_s - now)
        return replace(holding, hot_left_s=left_s)
