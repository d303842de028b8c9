"""What ``acklast why`` answers with: reasons, each with its evidence and what helps. Values alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from acklast.cli.lane_view import LaneView
from acklast.ledger.whereabouts import JobFacts, Known, Promise, Stray
from acklast.ledger.workers import WorkerView
from acklast.outlook.binding import Binding


class Need(StrEnum):
    """What a reason asks of people."""

    ACT = "act"
    """It stays so until somebody does something."""
    WAIT = "wait"
    """It goes on by itself."""
    NOTHING = "nothing"
    """It is as it should be."""


class Code(StrEnum):
    """The reasons that are a job's own; those of its lane have the words of ``lane_why.Because``. Stable."""

    DONE = "done"
    RUNNING = "running_now"
    """Its handler runs at this moment."""
    RUNNING_LONG = "running_long"
    """The same, for longer than nearly all others took."""
    ORPHANED = "orphaned"
    """It is claimed by a daemon that is gone."""
    DEAD = "dead"
    REDRIVE_WAITS = "redrive_waits"
    """It is part of a redrive that has not come to it."""
    REDRIVE_REFUSED = "redrive_refused"
    """A redrive was to try it again, and did not."""
    REDRIVEN = "redriven"
    """A redrive has queued it again."""
    UNRESOLVED = "unresolved"
    CANCELLED = "cancelled"
    RUN_CANCELLED = "run_cancelled"
    DEADLINE_PASSED = "deadline_passed"
    DEADLINE_RISK = "deadline_risk"
    """At the lane's pace it would start after its deadline."""
    NOT_BEFORE = "not_before"
    """Its publisher said when it may start."""
    RETRY = "retry"
    """An attempt failed, and the next one has its time."""
    RATE_LIMITED = "rate_limited"
    """The downstream refused it for its quota."""
    GIVEN_BACK = "given_back"
    """A daemon that drained gave it back."""
    BEHIND = "behind"
    """It is due, and others are before it."""
    DUE = "due"
    """It is due, and nothing known is before it."""
    UNPUBLISHED = "unpublished"
    """It is promised in the outbox, and the relay has not published it."""
    MAYBE_DELAYED = "maybe_delayed"
    """It was promised and never claimed: its message may have a not-before that nobody told the ledger."""
    LOST = "lost"
    """It is open in the ledger, and the broker has no message of it: proven."""
    MAYBE_LOST = "maybe_lost"
    """It looks so, and is not proven."""
    KEY_CONFLICT = "key_conflict"
    """Another message came under its key with another content, and was set aside."""
    DRAINING = "draining"
    """Every daemon that serves the lane drains."""
    VERSIONS = "versions"
    """Daemons of several versions serve the lane."""
    NOT_CONFIGURED = "not_configured"
    """This configuration does not have the lane."""
    BROKER_UNSEEN = "broker_unseen"
    UNROUTED = "unrouted"
    """A message with this key came for a lane that is not there."""
    SET_ASIDE = "set_aside"
    """A message with this key broke the contract or could not be delivered, and has no job."""
    UNFILED = "unfiled"
    """Messages without a lane wait for a daemon that takes them in: it may be one of them."""
    NOT_FIRED = "not_fired"
    """Its schedule has not come to its time."""
    FIRING = "firing"
    """The schedule's firing is at work, and has not come to it."""
    FIRING_FAILED = "firing_failed"
    NOT_IN_FIRING = "not_in_firing"
    """The firing is done, and had no row for it."""
    OTHER_LANE = "other_lane"
    """The key is known in another lane than the one that was named."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. ``certain``: the evidence proves it; else it is the likeliest that is known."""

    code: str
    need: Need
    says: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    helps: str | None = None
    """The command that does something about it, or shows more."""
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Position:
    """A job's place in its lane. ``ahead``: at most so many are before it; None where nobody can tell.

    ``starts_at`` is when its turn would come at the lane's present pace; None without a pace.
    """

    ahead: int | None
    per_s: float | None
    starts_at: datetime | None
    basis: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of one job; ``lane`` and ``state`` are None of a key that has no job."""

    lane: str | None
    state: str | None
    reasons: tuple[Reason, ...]
    position: Position | None = None

    @property
    def need(self) -> Need:
        """What all of them together ask for."""
        asked = {reason.need for reason in self.reasons}
        return next((need for need in Need if need in asked), Need.NOTHING)


@dataclass(frozen=True, slots=True)
class Proof:
    """What looks at a lane's queues have proven. ``looked``: somebody looked for as long as it takes."""

    looked: bool = False
    absent: bool = False
    """No message of the job is in the broker."""


NO_PROOF = Proof()


@dataclass(frozen=True, slots=True)
class Rules:
    """What the configuration says of a lane."""

    max_attempts: int
    on_unknown: str
    in_turns: bool = False
    """Its runs or tenants take turns."""


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that is known of one job. ``rules`` is None for a lane that is not configured here."""

    now: datetime
    facts: JobFacts
    lane: LaneView
    rules: Rules | None
    promises: tuple[Promise, ...] = ()
    strays: tuple[Stray, ...] = ()
    oldest_due: datetime | None = None
    workers: tuple[WorkerView, ...] = ()
    """The daemons that serve the lane and have not ended."""
    per_s: float | None = None
    """Jobs of the lane that end in a second, by what was measured."""
    holds: Binding | None = None
    """What holds the lane back."""
    proof: Proof = NO_PROOF
    blind: str | None = None
    """Why the broker could not be asked."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A firing to come whose run is in the key."""

    schedule: str
    run: str
    at: datetime
    paused_by: str | None = None
    paused_why: str | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """What is known of a key that has no job where it was looked for."""

    known: Known
    wanted: str | None
    """The lane that was named."""
    ready: Mapping[str, int | None]
    """Messages that no handler has begun, by lane; None where they could not be seen."""
    unfiled: int | None = None
    """Messages in the queue of those without a lane."""
    expected: tuple[Expected, ...] = ()
    daemons: int = 0
    """How many daemons live."""
    blind: str | None = None


def ordered(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """What asks for somebody first; the order among the others stays."""
    order = list(Need)
    return tuple(sorted(reasons, key=lambda reason: order.index(reason.need)))
