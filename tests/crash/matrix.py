"""The crash matrix as data: where the daemon dies, and what must have happened when all is over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from acklast import faults
from acklast.config.servers import Receiver
from acklast.ledger.api import State


class Window(StrEnum):
    """Between which two steps a crash falls: for all of one window the next delivery finds the same."""

    UNCLAIMED = "unclaimed"
    """No claim: it is as if the delivery had never come."""
    CLAIMED = "claimed"
    """A dead session's claim, and the handler had not been called; the ledger cannot know that."""
    CALLED = "called"
    """A dead session's claim, and the handler had been called: the one window for a second effect."""
    RECORDED = "recorded"
    """The verdict: what is left is to settle the delivery."""


WINDOWS: Final = {
    "received": Window.UNCLAIMED,
    "parsed": Window.UNCLAIMED,
    "entered": Window.UNCLAIMED,
    "claimed": Window.CLAIMED,
    "started": Window.CLAIMED,
    "effect": Window.CALLED,
    "decided": Window.CALLED,
    "recorded": Window.RECORDED,
    "published": Window.RECORDED,
    "acked": Window.RECORDED,
    "emitted": Window.RECORDED,
}


@dataclass(frozen=True, slots=True)
class Expected:
    """What the handler did over both lives of the daemon, and how its calls were told of the crash."""

    calls: int
    effects: int
    ambiguous: tuple[bool, ...]
    """One for each call."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One job, and which of its passes through the delivery path the crash falls into."""

    name: str
    steps: tuple[str, ...]
    state: State
    expected: dict[Window, Expected]
    letters: dict[Window, str]
    """The reason of the one dead letter; empty where there must be none."""
    pass_: int = 1
    publishes: bool = False
    """Whether this pass sends the job to wait, so that it goes by the point ``published``."""
    on_unknown: str = "retry"


_NO_LETTER: Final = dict.fromkeys(Window, "")

SCENARIOS: Final = (
    Scenario(
        "success",
        ("done",),
        State.DONE,
        {
            Window.UNCLAIMED: Expected(1, 1, (False,)),
            Window.CLAIMED: Expected(1, 1, (True,)),
            Window.CALLED: Expected(2, 2, (False, True)),
            Window.RECORDED: Expected(1, 1, (False,)),
        },
        _NO_LETTER,
    ),
    Scenario(
        "retry",
        ("transient", "done"),
        State.DONE,
        {
            Window.UNCLAIMED: Expected(2, 1, (False, False)),
            # What may have happened stays in doubt until the job is over.
            Window.CLAIMED: Expected(2, 1, (True, True)),
            # The refusal was not recorded, so the call after the crash is the second one already.
            Window.CALLED: Expected(2, 1, (False, True)),
            Window.RECORDED: Expected(2, 1, (False, False)),
        },
        _NO_LETTER,
        publishes=True,
    ),
    Scenario(
        "retry-2nd-pass",
        ("transient", "done"),
        State.DONE,
        {
            Window.UNCLAIMED: Expected(2, 1, (False, False)),
            Window.CLAIMED: Expected(2, 1, (False, True)),
            Window.CALLED: Expected(3, 2, (False, False, True)),
            Window.RECORDED: Expected(2, 1, (False, False)),
        },
        _NO_LETTER,
        pass_=2,
    ),
    Scenario(
        "bury",
        ("permanent",),
        State.DEAD,
        {
            Window.UNCLAIMED: Expected(1, 0, (False,)),
            Window.CLAIMED: Expected(1, 0, (True,)),
            Window.CALLED: Expected(2, 0, (False, True)),
            Window.RECORDED: Expected(1, 0, (False,)),
        },
        dict.fromkeys(Window, "refused"),
    ),
    Scenario(
        "hold",
        ("unknown",),
        State.UNRESOLVED,
        {
            Window.UNCLAIMED: Expected(1, 1, (False,)),
            # The ledger cannot tell the two windows apart, and a lane that holds what is uncertain never
            # calls again: the job stops for a person, with no effect or with one.
            Window.CLAIMED: Expected(0, 0, ()),
            Window.CALLED: Expected(1, 1, (False,)),
            Window.RECORDED: Expected(1, 1, (False,)),
        },
        {
            Window.UNCLAIMED: "no_answer",
            Window.CLAIMED: "unknown",
            Window.CALLED: "unknown",
            Window.RECORDED: "no_answer",
        },
        on_unknown="hold",
    ),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A crash: a scenario, the point at which the daemon dies, and who goes on."""

    scenario: str
    point: str
    successor: str = "one"
    """The instance that is started after the crash; another one has to wait for the lease."""
    receiver: str = Receiver.BULK.value

    def __str__(self) -> str:
        by_another = "" if self.successor == "one" else "-by-another"
        return f"{self.scenario}-{self.point}{by_another}-{self.receiver}"

    def of(self) -> Scenario:
        return next(scenario for scenario in SCENARIOS if scenario.name == self.scenario)

    @property
    def window(self) -> Window:
        return WINDOWS[self.point]

    @property
    def passed(self) -> bool:
        """Whether this scenario goes by this point at all."""
        return self.point != "published" or self.of().publishes

    @property
    def settings(self) -> dict[str, Any]:
        """Of the lane and its session. A successor of another name must not wait for long; nor must the first
        one lose its lease because the machine is busy."""
        lease_s = 60 if self.successor == "one" else 3
        return {"lease_s": lease_s, "on_unknown": self.of().on_unknown, "receiver": self.receiver}


def cases() -> Iterator[Case]:
    """Every scenario at every point; those that are never passed included."""
    for scenario in SCENARIOS:
        for point in faults.POINTS:
            yield Case(scenario.name, point)
    for point in ("claimed", "effect", "recorded", "published"):
        yield Case("retry", point, successor="two")


def _once_a_point() -> Iterator[Case]:
    """Each point in one scenario, another one for the next point."""
    for number, point in enumerate(faults.POINTS):
        passing = [case for case in CRASHES if case.point == point and case.successor == "one"]
        yield passing[number % len(passing)]


def _once_a_window() -> Iterator[Case]:
    """Each window once in each scenario, by another point of it in the next scenario."""
    for number, scenario in enumerate(SCENARIOS):
        for window in Window:
            points = [point for point, falls_into in WINDOWS.items() if falls_into is window]
            passing = [case for case in CRASHES if case.scenario == scenario.name and case.point in points]
            yield passing[number % len(passing)]


def _on_the_other(case: Case) -> Case:
    return replace(case, receiver=Receiver.LIBRARY.value)


CRASHES: Final = tuple(case for case in cases() if case.passed)
NEVER_PASSED: Final = tuple(case for case in cases() if not case.passed)
"""Both on the receiver that a daemon has unless it is told otherwise."""

OTHER_CRASHES: Final = tuple(map(_on_the_other, CRASHES))
OTHER_NEVER_PASSED: Final = tuple(map(_on_the_other, NEVER_PASSED))
"""The same on the client library's reader. What a crash leaves hardly depends on who read the delivery: all
of it is for the long tests, and ordinarily each point once."""

EVERY_POINT: Final = ("success", "retry")
"""The scenarios that are crashed at every point ordinarily. Within a window the next delivery finds the same,
and the simulation goes through each step of every scenario: of the others one point of a window is enough."""

ORDINARILY: Final = frozenset(
    {case for case in CRASHES if case.scenario in EVERY_POINT} | {*_once_a_window(), *NEVER_PASSED}
)

OTHER_ORDINARILY: Final = frozenset(map(_on_the_other, _once_a_point()))
