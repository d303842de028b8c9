"""``acklast redrive start``, ``pause``, ``resume`` and ``cancel``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

import typer

from acklast.cli.lane_target import As, operations_of, operator_of, reason_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.cli.redrive_given import (
    RATE,
    STEPS,
    TOLERATE,
    RedriveId,
    Step,
    Tolerate,
    WhyStarted,
    cumulative,
    parse_part,
    parse_rate,
    parse_steps,
)
from acklast.cli.redrive_view import document, tell
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger import redrive_changes as changes
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.redrive_plan import all_unchanged, versions_of
from acklast.ledger.redrives import Redrive, RedriveStatus, one
from acklast.pacing.controls import Refused

Change: TypeAlias = Callable[[Operations, int, str, Operator], Awaitable[bool]]
Why: TypeAlias = Annotated[str, typer.Option("--why", help="Why; it stays in the audit.")]


def start(
    redrive: RedriveId,
    why: WhyStarted,
    steps: Annotated[
        str, typer.Option(help="Letters released at the end of each step: numbers, or parts of the set.")
    ] = STEPS,
    rate: Annotated[str, typer.Option(help="Letters a second, minute or hour at most.")] = RATE,
    tolerate: Tolerate = TOLERATE,
    force: Annotated[
        str | None, typer.Option("--force", help="Why to try what failed again with the version that runs.")
    ] = None,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Have the lane's daemons try a plan, step by step. It goes on when this command has ended."""
    text, operator = reason_of(why), operator_of(as_)
    parsed, per_s, part = parse_steps(steps), parse_rate(rate), parse_part(tolerate or TOLERATE)
    forced = None if force is None else reason_of(force)
    given = (parsed, per_s, part, forced)
    found, served = asyncio.run(_start(configured(config), redrive, *given, text, operator))
    if as_json:
        say_json({**document(found), "versions": served})
        return Exit.OK
    tell(people(), found)
    if not served:
        people().print(f"  no living daemon serves lane {found.lane}: nothing is tried until one does")
    return Exit.OK


async def _start(
    config: Config,
    redrive: int,
    steps: tuple[Step, ...],
    per_s: float,
    part: float,
    forced: str | None,
    why: str,
    operator: Operator,
) -> tuple[Redrive, list[str]]:
    async with operations_of(config, patient=True) as operations:
        found = await one(operations, redrive)
        served = await versions_of(operations, found.lane)
        if found.status is RedriveStatus.PLANNED and forced is None:
            await _require_change(operations, found, served or [config.version])
        given = changes.Start(cumulative(steps, found.letters), per_s, part, forced)
        await changes.start(operations, redrive, given, why, operator)
        return await one(operations, redrive), served


async def _require_change(operations: Operations, found: Redrive, versions: list[str]) -> None:
    """
    Raises:
        Refused: each of its letters failed again of the same, and the version that did it still runs.
    """
    if await all_unchanged(operations, found.id, versions):
        raise Refused(
            f"all {found.letters:,} letters were tried again and failed as before, with"
            f" {', '.join(versions)}, which still runs",
            'Put in what makes a difference, or say why to try all the same: --force "..."',
        )


def pause(
    redrive: RedriveId, why: Why, as_: As = None, config: ConfigPath = CONFIG, as_json: Json = False
) -> Exit:
    """Release nothing more until it is resumed. What is at work comes to its end."""
    return _change(changes.pause, redrive, why, as_, config, as_json=as_json)


def resume(
    redrive: RedriveId, why: Why = "", as_: As = None, config: ConfigPath = CONFIG, as_json: Json = False
) -> Exit:
    """Let a paused redrive go on."""
    return _change(changes.resume, redrive, why, as_, config, as_json=as_json)


def cancel(
    redrive: RedriveId, why: Why, as_: As = None, config: ConfigPath = CONFIG, as_json: Json = False
) -> Exit:
    """Release nothing more, for good: of a plan, or of a redrive. What is at work comes to its end."""
    return _change(changes.cancel, redrive, why, as_, config, as_json=as_json)


def _change(
    change: Change, redrive: int, why: str, as_: str | None, config: ConfigPath, *, as_json: bool
) -> Exit:
    text = reason_of(why) if why or change is not changes.resume else ""
    changed, found = asyncio.run(_done(configured(config), change, redrive, text, operator_of(as_)))
    if as_json:
        say_json({**document(found), "changed": changed})
        return Exit.OK
    if not changed:
        people().print("nothing has changed:")
    tell(people(), found)
    return Exit.OK


async def _done(
    config: Config, change: Change, redrive: int, why: str, operator: Operator
) -> tuple[bool, Redrive]:
    async with operations_of(config) as operations:
        changed = await change(operations, redrive, why, operator)
        return changed, await one(operations, redrive)
