"""Which lane or budget an operator means, and what a change of it comes to in every daemon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias

import typer

from acklast.cli.spans import parse_moment, parse_span
from acklast.config import Config
from acklast.ledger.connect import Address
from acklast.ledger.controls import Target
from acklast.ledger.operate import Change, Follower, Operations, Operator
from acklast.ledger.standing import read_standing
from acklast.pacing.controls import Refused

_FOLLOW_S: Final = 3.0
"""How long to wait until every daemon has said that it follows."""
_LOOK_S: Final = 0.02
_REASON_MAX: Final = 500

LaneName: TypeAlias = Annotated[str | None, typer.Argument(metavar="[LANE]", help="The lane.")]
BudgetName: TypeAlias = Annotated[
    str | None, typer.Option("--budget", "-b", help="A budget instead: every lane that uses it.")
]
Why: TypeAlias = Annotated[str, typer.Option("--why", "--reason", "-r", help="Why; everybody sees it.")]
For: TypeAlias = Annotated[str | None, typer.Option("--for", help="How long: 90s, 30m, 2h, 1d.")]
Until: TypeAlias = Annotated[str | None, typer.Option("--until", help="Until when: RFC 3339 with an offset.")]
As: TypeAlias = Annotated[
    str | None,
    typer.Option("--as", envvar="ACKLAST_OPERATOR", help="Who you are, where the login does not say."),
]


@asynccontextmanager
async def operations_of(config: Config, *, patient: bool = False) -> AsyncIterator[Operations]:
    """The controls in the ledger, on one connection. ``patient``: a statement may take minutes.

    Raises:
        ConfigError, SchemaError: the ledger must not be used like this.
        LedgerUnavailable: it does not answer.
    """
    server = config.ledger
    address = Address.of(server.address(), allow_unsafe_server=server.allow_unsafe_server)
    operations = await Operations.connect(address, patient=patient)
    try:
        yield operations
    finally:
        operations.close()


# --- what was meant -------------------------------------------------------------------------------------


def target_of(lane: str | None, budget: str | None) -> tuple[Target, str]:
    """
    Raises:
        Refused: both are given, or none.
    """
    if lane is not None and budget is None:
        return Target.LANE, lane
    if budget is not None and lane is None:
        return Target.BUDGET, budget
    raise Refused("exactly one lane or budget is to be named", "Give LANE, or --budget NAME")


async def require(config: Config, operations: Operations, target: Target, name: str) -> None:
    """See that there is such a lane or budget: in this configuration, or in a daemon that reports.

    Raises:
        Refused: there is none; the error names those that there are.
    """
    if target is Target.BUDGET:
        require_configured(config, target, name)
    elif name not in config.lanes:
        others = (await read_standing(operations)).lanes
        if name not in others:
            raise unknown(config, target, name, others)


def require_configured(config: Config, target: Target, name: str) -> None:
    """
    Raises:
        Refused: it is not in this configuration.
    """
    known = config.budgets if target is Target.BUDGET else config.lanes
    if name not in known:
        raise unknown(config, target, name)


def unknown(config: Config, target: Target, name: str, others: Iterable[str] = ()) -> Refused:
    known = config.budgets if target is Target.BUDGET else config.lanes
    names = ", ".join(sorted({*known, *others})) or "none"
    hint = ""
    if target is Target.LANE and name in config.budgets:
        hint = f"; {name!r} is a budget: --budget {name}"
    elif target is Target.BUDGET and name in config.lanes:
        hint = f"; {name!r} is a lane: leave --budget away"
    return Refused(f"there is no {target} {name!r}", f"The {target}s are: {names}{hint}")


def until_of(for_: str | None, until: str | None) -> datetime | timedelta | None:
    """
    Raises:
        Refused: both are given, one cannot be read, or it is over already.
    """
    if for_ is not None and until is not None:
        raise Refused("--for and --until both say when it ends", "Give one of them")
    if for_ is not None:
        return parse_span(for_)
    if until is None:
        return None
    at = parse_moment(until)
    if at <= datetime.now(UTC):
        raise Refused(f"{until} is over", "Give a time that is still to come, or use --for")
    return at


def reason_of(text: str) -> str:
    """
    Raises:
        Refused: it says nothing, or too much.
    """
    reason = " ".join(text.split())
    if not reason:
        raise Refused("the reason is empty", "Say in a few words why: whoever is on call next reads it")
    if len(reason) > _REASON_MAX:
        raise Refused(f"the reason has {len(reason)} characters", f"Use at most {_REASON_MAX}")
    return reason


def operator_of(given: str | None) -> Operator:
    # From the environment, perhaps, where bytes that are no UTF-8 pass for text.
    name = " ".join((given or "").encode(errors="replace").decode().split())[:100]
    return Operator.of(name or None)


# --- what came of it ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Followed:
    """A change, and who follows it."""

    number: int
    followed: tuple[str, ...]
    waiting: tuple[str, ...]
    """Living daemons that have not said so within a few seconds."""


async def make(operations: Operations, change: Change, operator: Operator) -> Followed | None:
    """Make a change and wait until every living daemon follows it; None where there was nothing to change."""
    number = await operations.change(change, operator)
    if number is None:
        return None
    until = time.monotonic() + _FOLLOW_S
    while True:
        followers = await operations.followers()
        late = [one for one in followers if not _follows(one, number)]
        if not late or time.monotonic() >= until:
            followed = tuple(one.worker for one in followers if one not in late)
            return Followed(number, followed, tuple(one.worker for one in late))
        await asyncio.sleep(_LOOK_S)


def _follows(follower: Follower, number: int) -> bool:
    return follower.heard is not None and follower.heard >= number
