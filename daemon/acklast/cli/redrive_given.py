"""How a redrive is to be tried, as people type it: steps, a rate, what may fail."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import typer

from acklast.pacing.controls import Refused

STEPS: Final = "1,5,20,100%"
RATE: Final = "5/s"
TOLERATE: Final = "0%"

_STEPS_MAX: Final = 100
_STEP: Final = re.compile(r"([0-9]{1,12})|([0-9]{1,3}(?:\.[0-9]{1,6})?)%", re.ASCII)
_STEPS_RULE: Final = f'Give numbers of letters and parts of the set that grow, like "{STEPS}"'
_RATE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(?:\s*/\s*(s|min|h))?", re.ASCII)
_RATE_RULE: Final = 'Give letters a second, a minute or an hour, like "5/s", "90/min" or "500/h"'
_UNIT_S: Final = {"s": 1, "min": 60, "h": 3600}
_PART: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?)%|0", re.ASCII)
_PART_RULE: Final = 'Give a part of the letters, from "0%" to "100%"'

LARGEST: Final = 2**63 - 1
"""Of an id in the ledger."""
RedriveId: TypeAlias = Annotated[
    int, typer.Argument(metavar="PLAN", help="The id that 'redrive plan' gave.", min=1, max=LARGEST)
]
WhyStarted: TypeAlias = Annotated[str, typer.Option("--why", help="Why; it stays in the audit.")]
Tolerate: TypeAlias = Annotated[
    str | None, typer.Option("--tolerate", help="The part of the letters that may fail, such as 2%.")
]


@dataclass(frozen=True, slots=True)
class Step:
    """The end of a step: so many letters, or (``part``) so much of a hundred of the set."""

    amount: float
    part: bool = False

    def letters(self, of: int) -> int:
        """Pure. A part of a letter is a letter."""
        # As a decimal first: 1.1 % of 1,000 is 11, and not the 11.000000000000002 of a float.
        count = math.ceil(round(self.amount * of / 100, 6)) if self.part else int(self.amount)
        return min(max(count, 1), of)


def parse_steps(text: str) -> tuple[Step, ...]:
    """
    Raises:
        Refused: it cannot be read, or does not grow.
    """
    matches = [_STEP.fullmatch(word.strip()) for word in text.split(",")]
    if len(matches) > _STEPS_MAX:
        raise Refused(f"there are {len(matches)} steps", f"Give {_STEPS_MAX} at most")
    found = []
    for match in matches:
        if match is None:
            raise Refused(f"{text!r} are no steps", _STEPS_RULE)
        found.append(Step(float(match[2]), part=True) if match[2] else Step(int(match[1])))
    for kind in (True, False):
        amounts = [step.amount for step in found if step.part is kind]
        if amounts != sorted(set(amounts)) or 0 in amounts or (kind and amounts and amounts[-1] > 100):
            raise Refused(f"the steps {text!r} do not grow, up to 100%", _STEPS_RULE)
    # All of them first, and nothing would be left for the step that was to look.
    if Step(100, part=True) in found[:-1]:
        raise Refused(f"of the steps {text!r} one comes after all letters", _STEPS_RULE)
    return tuple(found)


def cumulative(steps: Sequence[Step], letters: int) -> list[int]:
    """How many of ``letters`` have been released at the end of each step. Pure.

    Each releases one more than the step before at least, and the last one all that are left: a step that has
    nothing left to release is none.
    """
    ends: list[int] = []
    for step in steps:
        end = max(step.letters(letters), ends[-1] + 1 if ends else 1)
        if end >= letters:
            break
        ends.append(end)
    return [*ends, letters]


def parse_rate(text: str) -> float:
    """Letters a second.

    Raises:
        Refused: it cannot be read, or is none.
    """
    match = _RATE.fullmatch(text.strip())
    rate = float(match[1]) / _UNIT_S[match[2] or "s"] if match else 0.0
    if rate <= 0:
        raise Refused(f"{text!r} is no rate", _RATE_RULE)
    return rate


def parse_part(text: str) -> float:
    """``2%`` as 0.02.

    Raises:
        Refused: it cannot be read, or is more than all.
    """
    match = _PART.fullmatch(text.strip())
    part = round(float(match[1] or 0) / 100, 9) if match else 2.0
    if part > 1:
        raise Refused(f"{text!r} is no part of the letters", _PART_RULE)
    return part


def shown_rate(per_s: float) -> str:
    """A rate for people, in the smallest unit in which it is one at least."""
    for unit, size in _UNIT_S.items():
        if per_s * size >= 1 or unit == "h":
            return f"{per_s * size:g}/{unit}"
    raise AssertionError("there is an hour")
