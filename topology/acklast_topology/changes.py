"""What would change on a broker, in plain words: each finding as what is to be done about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from acklast_topology.finding import Finding, Found


class Action(StrEnum):
    """What is to be done about one object."""

    CREATE = "create"
    """It is missing. ``apply`` makes it."""
    MIGRATE = "migrate"
    """Its arguments differ and cannot be changed. ``apply --migrate`` replaces it and loses nothing."""
    REMOVE = "remove"
    """Nothing names it, and it is empty. ``apply --prune`` removes it."""
    LEAVE = "leave"
    """Nothing names it, and it is in use or not acklast's. Nothing is done to it."""
    CORRECT = "correct"
    """Only somebody else can: a policy, a permission, jobs that nobody reads."""
    UNSEEN = "unseen"
    """This user cannot see it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One object: what is to be done, what is found, and how to go on. ``messages`` as in ``Finding``."""

    action: Action
    kind: str
    name: str
    detail: str
    remedy: str
    messages: int | None

    @property
    def to_do(self) -> bool:
        """Whether the broker is not as the configuration wants it."""
        return self.action not in (Action.LEAVE, Action.UNSEEN)


def changes(findings: Iterable[Finding]) -> list[Change]:
    """What each finding asks for; what is as planned asks for nothing."""
    return [change for finding in findings if (change := _change(finding)) is not None]


def _change(finding: Finding) -> Change | None:
    action = _action(finding)
    if action is None:
        return None
    detail, remedy = finding.detail, finding.remedy
    if action is Action.CREATE:
        detail, remedy = "is not there", ""
    elif action is Action.MIGRATE and finding.messages:
        detail = f"{detail}; holds {finding.messages} messages"
    return Change(action, finding.kind, finding.name, detail, remedy, finding.messages)


def _action(finding: Finding) -> Action | None:
    match finding.status:
        case Found.PRESENT | Found.CREATED | Found.MIGRATED | Found.REMOVED:
            return None
        case Found.MISSING:
            return Action.CREATE
        case Found.DIFFERS:
            return Action.CORRECT if finding.kind == "policy" else Action.MIGRATE
        case Found.REFUSED | Found.LEFT:
            return Action.CORRECT
        case Found.EXTRA:
            return Action.REMOVE if finding.kind == "queue" and finding.messages == 0 else Action.LEAVE
        case Found.UNSEEN:
            return Action.UNSEEN
        case _:
            assert_never(finding.status)
