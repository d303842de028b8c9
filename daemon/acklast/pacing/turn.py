"""Whose turn a start is: the flow that it belongs to, and how often that flow comes."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from acklast.config.fair import FairBy
from acklast.pacing.fair import Fair
from acklast_topology.contract import RawMessage
from acklast_topology.message import UNSET_PRIORITY
from acklast_topology.value import value

if TYPE_CHECKING:
    from acklast.pacing.permit import Permit

_HIGHEST: Final = 9


@value
class Turn:
    """What a start is charged to: its lane and, within that, its flow. Weights are above 0."""

    lane: str = ""
    lane_weight: float = 1.0
    flow: Hashable = ""
    weight: float = 1.0


NOBODYS: Final = Turn()


def weight_of(priority: int | None) -> float:
    """How often jobs of this priority start, beside those without one: from 0.2 (0) to 2 (9)."""
    level = UNSET_PRIORITY if priority is None else min(max(priority, 0), _HIGHEST)
    return (level + 1) / (UNSET_PRIORITY + 1)


class Turns:
    """Tells whose turn a message's start is in one lane."""

    def __init__(self, lane: str, lane_weight: float, fair_by: FairBy) -> None:
        self._lane = lane
        self.lane_weight = lane_weight
        self._fair_by = fair_by

    def of(self, raw: RawMessage) -> Turn:
        """Never raises, whatever the message holds: one that breaks the contract has a flow too."""
        priority = raw.priority
        flow = (self._fair_by.key(raw), UNSET_PRIORITY if priority is None else priority)
        return Turn(self._lane, self.lane_weight, flow, weight_of(priority))


class Waiters:
    """Who waits for a permit: lanes take turns by their weights, and in a lane its flows by theirs."""

    def __init__(self) -> None:
        self._lanes: Fair[str] = Fair()
        self._flows: dict[str, Fair[asyncio.Future[Permit]]] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def join(self, waiter: asyncio.Future[Permit], turn: Turn) -> None:
        """Stand in line."""
        flows = self._flows.get(turn.lane)
        if flows is None:
            flows = self._flows[turn.lane] = Fair()
        flows.append(waiter, turn.flow, turn.weight)
        self._lanes.append(turn.lane, turn.lane, turn.lane_weight)

    def first(self) -> asyncio.Future[Permit]:
        """Who is next.

        Raises:
            IndexError: nobody waits.
        """
        return self._flows[self._lanes.first()].first()

    def drop(self) -> None:
        """Take out who is next, who has left: nobody pays for it.

        Raises:
            IndexError: nobody waits.
        """
        self._flows[self._lanes.first()].drop()
        self._lanes.drop()

    def popleft(self) -> asyncio.Future[Permit]:
        """Take out who is next.

        Raises:
            IndexError: nobody waits.
        """
        return self._flows[self._lanes.popleft()].popleft()
