"""One lane as its deliveries see it: everything they need, and what they tell each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from acklast.errors import LedgerUnavailable
from acklast.handlers.app import App
from acklast.ledger.api import Ledger
from acklast.ledger.lease import Lease
from acklast.ledger.refusals import Locked
from acklast.ledger.watch import LedgerWatch
from acklast.pacing.lanes import LanePacing
from acklast.policy import Policy
from acklast.settle import Delivery, Settler
from acklast.telemetry.events import Emitter
from acklast.telemetry.tracer import Tracer

T = TypeVar("T")

_LEDGER_RETRY_S: Final = (0.05, 0.2, 0.5, 1.0)
"""Pauses between tries while the ledger is away; the last one repeats."""


class Abandoned(Exception):  # noqa: N818 - not an error: the drain's time is up
    """The time for settling passed while the ledger was away: the delivery stays unacked."""


class Returned(Exception):  # noqa: N818 - not an error: the job goes on under another delivery
    """The delivery went back to its queue while the ledger was asked."""


@dataclass(slots=True)
class Drain:
    """What the delivery path asks about a drain."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    """Every consumer is cancelled: what is given back goes to somebody else."""
    cutting: bool = False
    """The deadline has passed: running handlers are being cancelled."""
    ends: float = 0.0
    """When the deadline is, on the monotonic clock."""
    abandoned: bool = False
    """The time for settling is over too."""
    left: int = 0
    """Deliveries that had not ended even then: a handler of theirs may still be at work."""

    def cuts(self) -> bool:
        """Whether a cancellation means that a handler is to stop and its job to be settled.

        Once the drain has given up, a cancellation ends the delivery where it stands: a thread that nobody
        can stop would otherwise keep the process from ending.
        """
        return self.cutting and not self.abandoned


@dataclass(slots=True)
class Lane:
    """Everything that one lane's deliveries need."""

    name: str
    app: App
    policy: Policy
    ledger: Ledger
    lease: Lease
    pacing: LanePacing
    settler: Settler
    emitter: Emitter
    drain: Drain
    worker: str
    version: str
    chance: Callable[[], float]
    """A random number in [0, 1), for the jitter."""
    watch: LedgerWatch
    tracer: Tracer = field(default_factory=Tracer)
    """Begins the traces of its deliveries."""
    active: dict[str, float] = field(default_factory=dict)
    """Keys that this process has claimed and not yet recorded, and when their deliveries came: a second copy
    of theirs waits."""
    custody: bool = False
    """The ledger keeps the messages of its open jobs."""
    claimed: set[Delivery] = field(default_factory=set)
    """Deliveries whose claims stand in the ledger, without a verdict: a carrier may take their place."""
    attempting: set[asyncio.Task[Any]] = field(default_factory=set)
    """Tasks inside an attempt: the only ones that a drain may cut."""

    async def insist(self, call: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Call the ledger until it answers: while it is away nothing starts and nothing is settled.

        Raises:
            Abandoned: the drain's time is up.
        """
        tries = 0
        while True:
            try:
                answer = await call(*arguments)
                self.watch.answered(self.name)
                return answer
            except LedgerUnavailable as error:
                await self.wait_out(error, tries)
                tries += 1

    async def wait_out(self, error: LedgerUnavailable, tries: int) -> None:
        """Wait before the ledger is called again, after ``tries`` waits before.

        Raises:
            Abandoned: the drain's time is up.
        """
        if self.drain.abandoned:
            raise Abandoned from error
        if not isinstance(error, Locked):
            self.watch.missed(self.name, error)
        elif tries == 0:
            self.emitter.notice("job.locked", "warning", lane=self.name, key=error.key, error=error.what)
        await asyncio.sleep(_LEDGER_RETRY_S[min(tries, len(_LEDGER_RETRY_S) - 1)])
