"""The promises, checked after every step: whatever goes wrong, in every simulation."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final, Protocol

from acklast.ledger.about import RUN_CANCELLED
from acklast.ledger.api import Recorded, State
from acklast.ledger.memory import MemoryLedger
from acklast.policy import OnUnknown
from acklast.testing.broker import Broker, Label, label_of
from acklast_topology.contract import Envelope, Malformed, RawMessage, digest, parse

DECIDED: Final = frozenset({State.DONE, State.DEAD, State.CANCELLED, State.UNRESOLVED})
_NO_EFFECT: Final = frozenset({"transient", "rate_limited", "permanent", "interrupted", "not_started"})
"""Outcomes that say for certain that the effect did not happen."""


class Violation(AssertionError):  # noqa: N818 - an assertion that fails
    """A promise is broken."""


class Owner(Protocol):
    """A process, as far as its claims go."""

    def owns(self, session: int) -> bool:
        """Whether it is alive and by its own clock still holds this session's lease."""


@dataclass(slots=True, eq=False)
class Start:
    """One start of a handler."""

    key: str
    fence: int
    process: Owner
    session: int
    ambiguous: bool
    effect: bool = False
    recorded: str = ""
    """The outcome that was recorded, once it is."""
    excuse: str = ""
    """What fell between its effect and its record as done, so that the effect may come again."""


@dataclass(frozen=True, slots=True)
class Published:
    """A message that the broker confirmed to its publisher, and how the contract reads it."""

    raw: RawMessage
    read: Envelope | Malformed
    label: Label

    @classmethod
    def of(cls, raw: RawMessage) -> Published:
        return cls(raw, parse(raw), label_of(raw))


@dataclass(slots=True)
class Account:
    """What happened outside of the processes, which no crash takes back."""

    ledger: MemoryLedger
    broker: Broker
    on_unknown: OnUnknown
    published: list[Published] = field(default_factory=list)
    starts: defaultdict[str, list[Start]] = field(default_factory=lambda: defaultdict(list))
    broken: list[Violation] = field(default_factory=list)
    """Kept, because a violation that is raised inside of a handler would pass for the handler's failure."""

    def promise(self, kept: object, what: str) -> None:
        """Raises ``Violation`` where a promise is not kept."""
        if not kept:
            self.broken.append(Violation(what))
            raise self.broken[-1]

    # --- what happens ---------------------------------------------------------------------------------

    def start(self, start: Start) -> None:
        earlier = self.starts[start.key]
        self.promise(self.ledger._alive(start.session), f"{start.key}: started without a live lease")
        self.promise(
            all(start.fence > other.fence for other in earlier),
            f"{start.key}: the handler started twice for fence {start.fence}",
        )
        for other in earlier:
            if not other.recorded and not other.excuse:
                owned = other.process.owns(other.session)
                self.promise(not owned, f"{start.key}: taken from an owner who holds its lease")
                other.excuse = "its lease ended"
        job = self.ledger._jobs["work", start.key]
        end = self.ledger._rows.cancelled.get(job.run or "")
        in_flight = end is None or (job.claimed_at is not None and job.claimed_at <= end.at)
        self.promise(in_flight, f"{start.key}: started after its run was cancelled")
        doubtful = [other for other in earlier if other.recorded not in _NO_EFFECT]
        self.promise(
            start.ambiguous or not doubtful,
            f"{start.key}: started as if no earlier attempt could have had its effect",
        )
        self.promise(
            not any(other.recorded == "done" for other in earlier), f"{start.key}: started after it was done"
        )
        earlier.append(start)

    def effects(self, key: str) -> int:
        return sum(start.effect for start in self.starts[key])

    def record(self, key: str, fence: int, outcome: str, answer: Recorded) -> None:
        for start in self.starts[key]:
            if start.fence != fence or start.recorded:
                continue
            if answer is Recorded.CLAIM_LOST:
                start.excuse = start.excuse or "its claim was lost"
            else:
                start.recorded = outcome
                done = sum(other.recorded == "done" for other in self.starts[key])
                self.promise(done <= 1, f"{key}: recorded as done by two owners")
                if outcome != "done":
                    start.excuse = start.excuse or f"it was recorded as {outcome}"

    def die(self, process: Owner) -> None:
        """A process is gone, with all that it had not said."""
        for starts in self.starts.values():
            for start in starts:
                if start.process is process and not start.recorded:
                    start.excuse = start.excuse or "its process died"

    def ack(self, start: Start | None) -> None:
        self.promise(
            start is None or start.recorded or start.excuse,
            f"{start and start.key}: acked before the verdict was recorded",
        )

    # --- what holds -----------------------------------------------------------------------------------

    def check(self) -> None:
        """After every step: nothing is lost, and nothing happens more often than the faults explain."""
        for message in self.published:
            if not self._decided(message) and not self.broker.copies(message.label):
                self.promise(False, f"{message.label}: lost, neither decided nor carried by the broker")
        for key in self.starts:
            self._check_effects(key)

    def _decided(self, message: Published) -> bool:
        read, letters = message.read, self.ledger._letters
        if isinstance(read, Malformed):
            return any(letter.digest == digest(message.raw) for letter in letters)
        job = self.ledger._jobs.get(("work", read.key))
        if job is not None and job.fingerprint == read.fingerprint:
            return job.state in DECIDED
        views = [letter.view for letter in letters]
        return any(view.reason == "key_conflict" and view.key == read.key for view in views)

    def _check_effects(self, key: str) -> None:
        effects = [start for start in self.starts[key] if start.effect]
        excused = sum(bool(start.excuse) for start in effects)
        allowed = 1 if self.on_unknown is OnUnknown.HOLD else 1 + excused
        self.promise(len(effects) <= allowed, f"{key}: {len(effects)} effects, {excused} of them excused")

    def state(self, key: str) -> State | None:
        job = self.ledger._jobs.get(("work", key))
        return None if job is None else job.state

    def check_end(self) -> None:
        """When all is quiet: each message came to an end that somebody can look at."""
        self.check()
        self.promise(self.broker.empty, "messages are left in the broker")
        for message in self.published:
            self.promise(self._decided(message), f"{message.label}: still open when all was quiet")
        lettered = {letter.view.key for letter in self.ledger._letters}
        for (_, key), job in self.ledger._jobs.items():
            stopped = job.state is State.CANCELLED and job.reason == RUN_CANCELLED
            uncertain = [one for one in self.starts[key] if one.recorded not in _NO_EFFECT]
            self.promise(not (stopped and uncertain), f"{key}: cancelled though it may have happened")
            self.promise(
                job.state is not State.DONE or self.effects(key) > 0, f"{key}: done without its effect"
            )
            buried = job.state in (State.DEAD, State.UNRESOLVED)
            self.promise(not buried or key in lettered, f"{key}: {job.state} without its payload")
        digests = [letter.digest for letter in self.ledger._letters if letter.digest is not None]
        self.promise(len(digests) <= self._strays(), "one message became two dead letters")

    def _strays(self) -> int:
        """How many different messages can have no job of their own."""
        return len({message.label for message in self.published})
