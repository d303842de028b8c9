"""The names of everything acklast owns on a broker: one place, so that no other module spells one."""

from __future__ import annotations

import re
from dataclasses import dataclass

VERSION = "v1"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?\Z")
NAME_RULE = "1 to 64 of a-z, 0-9, '-' and '_', starting and ending with a letter or digit"


def valid_name(name: str) -> bool:
    """Whether ``name`` may name a lane or a namespace.

    Dots are routing-key separators, and upper case invites two lanes that differ in case alone.
    """
    return _NAME.match(name) is not None


_PLACE = re.compile(
    r"(?P<lane>[a-z0-9_-]+)\.(?P<kind>work|dead|wait|fair)(?:\.(?P<number>[1-9][0-9]*))?(?P<moving>\.moving)?\Z"
)
_NUMBERED = frozenset({"wait", "fair"})


@dataclass(frozen=True, slots=True)
class Place:
    """What a queue is for, read from its name.

    ``kind`` is ``work``, ``dead``, ``wait`` or ``fair``; ``number`` the seconds of a wait queue or the number
    of a fair one. ``moving``: it stands in for that queue while it is replaced.
    """

    lane: str
    kind: str
    number: int = 0
    moving: bool = False


@dataclass(frozen=True, slots=True)
class Names:
    """Names under one namespace.

    Raises:
        ValueError: the namespace breaks ``NAME_RULE``.
    """

    ns: str = "acklast"

    def __post_init__(self) -> None:
        if not valid_name(self.ns):
            raise ValueError(f"namespace {self.ns!r} is not valid: use {NAME_RULE}")

    @property
    def ingress(self) -> str:
        """The topic exchange that every publisher sends to."""
        return f"{self.ns}.{VERSION}.in"

    @property
    def unrouted(self) -> str:
        """The fanout exchange and the queue that keep what no lane is bound to."""
        return f"{self.ns}.{VERSION}.unrouted"

    @property
    def route(self) -> str:
        """The direct exchange that only acklast and its dead-letter arguments publish to."""
        return f"{self.ns}.{VERSION}.route"

    def work(self, lane: str) -> str:
        return f"{self.ns}.{VERSION}.{lane}.work"

    def wait(self, lane: str, seconds: int) -> str:
        return f"{self.ns}.{VERSION}.{lane}.wait.{seconds}"

    def fair(self, lane: str, number: int) -> str:
        return f"{self.ns}.{VERSION}.{lane}.fair.{number}"

    def dead(self, lane: str) -> str:
        return f"{self.ns}.{VERSION}.{lane}.dead"

    def moving(self, queue: str) -> str:
        """What stands in for a queue while it is replaced."""
        return f"{queue}.moving"

    @property
    def changing(self) -> str:
        """A queue that is there while somebody replaces or removes others: of one connection at a time."""
        return f"{self.ns}.{VERSION}.changing"

    def place(self, queue: str) -> Place | None:
        """What a queue of a lane is for; None for any other name."""
        if not self.owns(queue):
            return None
        found = _PLACE.match(queue, len(f"{self.ns}.{VERSION}."))
        if found is None or not valid_name(found["lane"]):
            return None
        if (found["number"] is not None) != (found["kind"] in _NUMBERED):
            return None
        return Place(found["lane"], found["kind"], int(found["number"] or 0), found["moving"] is not None)

    def owns(self, name: str) -> bool:
        """Whether ``name`` lies in this namespace."""
        return name.startswith(f"{self.ns}.{VERSION}.")


def work_key(lane: str) -> str:
    """The routing key by which the internal router reaches a lane's work queue."""
    return f"{lane}.work"


def wait_key(lane: str, seconds: int) -> str:
    """The routing key by which the internal router reaches a lane's wait queue."""
    return f"{lane}.wait.{seconds}"


def fair_key(lane: str, number: int) -> str:
    """The routing key by which the internal router reaches one of a lane's fair queues."""
    return f"{lane}.fair.{number}"


def dead_key(lane: str) -> str:
    """The routing key by which the internal router reaches a lane's dead-letter queue."""
    return f"{lane}.dead"
