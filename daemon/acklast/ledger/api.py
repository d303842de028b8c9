"""What every ledger does, and the values that go in and come out.

Two stores answer to it: ``postgres`` (the authority in production) and ``memory`` (tests, simulations). One
conformance suite runs on both. All times are the ledger's clock, aware, UTC.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from acklast.ledger.about import NOTHING, Cancellation, RunAbout
from acklast.ledger.retention import Keeps, Step
from acklast.ledger.trials import Trial
from acklast.outcome import Verdict
from acklast_topology.items import Manifested
from acklast_topology.job import Job
from acklast_topology.value import value


class State(StrEnum):
    """The states of a job. ``done``, ``dead`` and ``cancelled`` are final until a person redrives."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    WAITING = "waiting"
    DONE = "done"
    DEAD = "dead"
    UNRESOLVED = "unresolved"
    CANCELLED = "cancelled"


@value
class Kept:
    """A message that the ledger keeps for its job. ``header`` is the payload of an AMQP content header."""

    header: bytes
    body: bytes


# --- claiming ---------------------------------------------------------------------------------------


@value
class Claim:
    """A delivery asks for its job. ``kept``: its message, where the ledger is to keep it until the end.
    ``priority`` is the message's, for the counts.
    """

    lane: str
    key: str
    fingerprint: bytes
    type: str | None = None
    run: str | None = None
    published_at: datetime | None = None
    deadline: datetime | None = None
    not_before: datetime | None = None
    kept: Kept | None = None
    priority: int | None = None


@value
class Fresh:
    """The job is ours. ``attempt`` counts the attempts that count, this one included (from 1).

    ``ambiguous``: an earlier attempt may have had its effect (a crash, a timeout, a cut). ``stopped``: it is
    ambiguous, and its run was cancelled meanwhile: find out or keep the evidence, and do not start it.
    """

    fence: int
    attempt: int
    rate_limited: int
    ambiguous: bool
    now: datetime
    stopped: bool = False


@value
class Decided:
    """The job's verdict is already recorded: settle the delivery, run nothing.

    ``fence`` is the job's own, so that the replayed acknowledgement can be noted.
    """

    state: State
    now: datetime
    fence: int = 0


@dataclass(frozen=True, slots=True)
class NotDue:
    """The job waits until ``at``."""

    at: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class Held:
    """A live session owns the job; its lease runs until ``until`` unless renewed."""

    until: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key is taken by a job with another fingerprint. That job is untouched."""

    now: datetime


Claimed: TypeAlias = Fresh | Decided | NotDue | Held | Conflict


# --- recording --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Letter:
    """The evidence of a dead (or unresolved, or malformed) message: what it was, and why it is here.

    ``properties`` and ``headers`` are ready for JSON (binary values already escaped).
    ``digest`` is set for letters without a job of their own (malformed, key conflict): the same message
    delivered twice is one letter seen twice. ``failure`` is the failure's fingerprint; where it is empty,
    that of reason and detail.
    """

    lane: str
    reason: str
    payload: bytes
    key: str | None = None
    run: str | None = None
    type: str | None = None
    content_type: str | None = None
    detail: str = ""
    exchange: str = ""
    routing_key: str = ""
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    digest: bytes | None = None
    failure: str = ""


@value
class Record:
    """The verdict of one attempt. ``letter`` goes with Bury and Hold.

    ``outcome`` is the outcome's name in snake case (``done``, ``rate_limited``, ``transient``, ``permanent``,
    ``unknown``, ``interrupted``). ``effect_at`` is when the handler returned. ``frees``: the ledger keeps the
    job's message, which goes if this is its end. ``follow_ups`` are promised with a Complete, in its commit.
    """

    lane: str
    key: str
    fence: int
    verdict: Verdict
    outcome: str
    reason: str
    started_at: datetime
    effect_at: datetime
    detail: str = ""
    letter: Letter | None = None
    frees: bool = False
    follow_ups: Sequence[Job] = ()


class Recorded(StrEnum):
    """What became of a record."""

    RECORDED = "recorded"
    """The transition was made now, or had been made by the same fence before (a repeated flush)."""
    CLAIM_LOST = "claim_lost"
    """The fence had moved on: nothing was written."""


# --- reading ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptView:
    fence: int
    attempt: int
    outcome: str
    reason: str
    detail: str
    started_at: datetime | None
    ended_at: datetime | None
    worker: str
    version: str


@dataclass(frozen=True, slots=True)
class JobView:
    """One job's account, with the attempts that did not simply succeed, oldest first."""

    lane: str
    key: str
    state: State
    type: str | None
    run: str | None
    fence: int
    attempts: int
    rate_limited: int
    ambiguous: bool
    reason: str | None
    result: Any
    worker: str | None
    version: str | None
    published_at: datetime | None
    enqueued_at: datetime
    claimed_at: datetime | None
    available_at: datetime | None
    effect_at: datetime | None
    recorded_at: datetime | None
    settled_at: datetime | None
    deadline: datetime | None
    history: tuple[AttemptView, ...] = ()
    letters: tuple[LetterView, ...] = ()
    redrives: tuple[Trial, ...] = ()
    """The redrives that it is part of, the oldest first."""


@dataclass(frozen=True, slots=True)
class LetterView:
    id: int
    lane: str
    key: str | None
    run: str | None
    reason: str
    detail: str
    attempts: int
    first_failure_at: datetime
    last_failure_at: datetime
    seen: int
    worker: str
    version: str
    failure: str
    """The failure's fingerprint (``acklast.fingerprint``)."""
    trace_id: str | None


LATELY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class RunView:
    """A run's account. ``manifest`` is None for a run that foreign publishers made by the header alone.

    ``counts`` are of all its jobs; ``pruned`` says how many of them retention has removed meanwhile.
    """

    run: str
    manifest: int | None
    counts: Mapping[State, int]
    created_at: datetime | None
    attempts: int
    """Claims started over the run, spent or not."""
    pruned: Mapping[State, int] = field(default_factory=dict)
    about: RunAbout = NOTHING
    cancelled: Cancellation | None = None
    at: datetime | None = None
    """When this was so."""
    ended_lately: int = 0
    """Jobs that came to their end in the last ``LATELY_S`` seconds."""
    ended_at: datetime | None = None
    """The last end of one of its jobs that are still there."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def balanced(self) -> bool:
        """Whether every job of the manifest is in exactly one state."""
        return self.manifest is None or self.manifest == self.total

    @property
    def open(self) -> int:
        """Jobs that still have something to do."""
        return sum(self.counts.get(s, 0) for s in (State.QUEUED, State.CLAIMED, State.WAITING))


# --- enqueueing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One job that a run promises to publish. ``kept``: its message, where the ledger is to keep it.

    ``not_before``: it waits until then. Without it the ledger would take it for due, and for lost while its
    message is in a wait queue. ``priority`` is its
    message's, for the counts.
    """

    lane: str
    key: str
    fingerprint: bytes
    type: str | None = None
    deadline: datetime | None = None
    kept: Kept | None = None
    priority: int | None = None
    not_before: datetime | None = None


# --- the ledger -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Session:
    """A worker session as it was opened. Ids grow."""

    id: int
    instance: str
    lease_s: float


class Ledger(Protocol):
    """The authority on every job.

    Every method raises ``LedgerUnavailable`` where the store cannot be reached.
    """

    async def open_session(self, instance: str, *, worker: str, version: str, lease_s: float) -> Session:
        """Start a worker session; ends the sessions of the same ``instance`` at once.

        Only for a caller that holds the instance's exclusive lock, which proves that its predecessor is gone.
        """

    async def renew(self, session: Session) -> bool:
        """Extend the lease by ``session.lease_s``; False where it had ended already: it never lives again."""

    async def close_session(self, session: Session) -> None:
        """End the lease now."""

    def claim(self, session: Session, claim: Claim) -> Awaitable[Claimed]:
        """Claim a job for this session, or say why not.

        Raises ``SessionLost`` where the session's lease has ended.
        """

    def record(self, session: Session, record: Record) -> Awaitable[Recorded]:
        """Write an attempt's verdict, guarded by the fence."""

    async def settled(self, lane: str, key: str, fence: int) -> None:
        """Note, lazily, that the delivery of this fence was acknowledged."""

    async def bury_stray(self, letter: Letter, *, worker: str, version: str) -> None:
        """Keep a message that has no job of its own (malformed, key conflict). Safe to repeat by digest."""

    def transaction(self, session: Session, record: Record) -> AbstractAsyncContextManager[Any]:
        """A connection in a transaction that also writes ``record`` at its end.

        Raises ``ClaimLost`` at the end, rolling everything back, where the fence has moved on.
        """

    async def manifest(
        self, run: str, rows: Sequence[ManifestRow], about: RunAbout = NOTHING
    ) -> Sequence[Manifested]:
        """Promise jobs of a run, in one transaction; one answer per row, in order.

        ``about`` adds to what is known of the run. Raises ``RunDiffers`` where it contradicts that, and
        ``RunCancelled``; nothing is promised then.
        """

    async def cancel(self, lane: str, key: str) -> bool:
        """Cancel a job that is not final; False where there is none such."""

    async def jobs(self, key: str, lane: str | None = None) -> Sequence[JobView]:
        """The accounts of all jobs with this key."""

    async def run(self, run: str) -> RunView | None:
        """A run's account, or None where nothing is known of it."""

    def prune(self, keeps: Keeps, *, dry_run: bool = False) -> AsyncGenerator[Step, None]:
        """Remove what is older than its lane's windows, a small batch per step: pause between them.

        Jobs that are not final stay, whatever their age, and so do their letters. Each step is one commit,
        together with the tallies that keep the runs' accounts. A dry run only counts.

        Raises ``AlreadyPruning`` where another pass is under way.
        """

    async def close(self) -> None:
        """Flush what is lazy and let the connections go."""
