"""``acklast unresolved resolve``: people decide what a job is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

import typer

from acklast.cli.bar import bar
from acklast.cli.dead_changes import Why
from acklast.cli.dead_select import Fingerprint, LaneOption, ReasonOption, RunOption, Since, Until, wanted_of
from acklast.cli.lane_target import operations_of, operator_of, reason_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.cli.unresolved_target import ByOption, Meant, Names, meant_of, picked
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.unresolved import arguments_of
from acklast.ledger.unresolved_changes import (
    BATCH,
    RETRY_BATCH,
    As,
    Changed,
    Decision,
    Refusal,
    look,
)
from acklast.ledger.unresolved_changes import resolve as resolve_jobs
from acklast.pacing.controls import Refused

_WHY: Final = {
    Refusal.NOT_UNRESOLVED: "are not unresolved (any more); 'acklast jobs show KEY' tells what they are",
    Refusal.MOVED: "somebody else decides on at this moment",
    Refusal.BEING_RETRIED: "are to run again already, by a redrive",
    Refusal.NO_CONTENT: "have no message left: only --as done or dead is open to them",
    Refusal.RUN_CANCELLED: "are of a cancelled run: nothing of it starts any more",
    Refusal.CAPPED: "were tried again as often as [dead] max_redrives allows",
    Refusal.NO_RECONCILE: "are HTTP requests, which cannot be asked: find out yourself, then resolve them",
}

AsOperator: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--as-operator", envvar="ACKLAST_OPERATOR", help="Who you are, where the login does not say."
    ),
]


def resolve(
    how: Annotated[As, typer.Option("--as", help="What each of them is to be.")],
    why: Why,
    names: Names = None,
    lane: LaneOption = None,
    run: RunOption = None,
    reason: ReasonOption = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    by: ByOption = None,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="With --as done: its result.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and change nothing.")] = False,
    as_operator: AsOperator = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Decide on unresolved jobs: done, dead, or to run again (retry) though the effect may have happened.

    A job that is to run again stays unresolved until a daemon that runs its lane releases it.
    """
    wanted = wanted_of(lane, run, reason, fingerprint, since, until)
    meant = meant_of(names, by, wanted)
    settings = configured(config)
    decision = Decision(
        how,
        reason_of(why),
        operator_of(as_operator),
        settings.dead.max_redrives,
        _result(how, result),
        arguments_of(wanted),
    )
    told = asyncio.run(_resolve(settings, meant, decision, dry_run=dry_run))
    if as_json:
        say_json({**_document(told), "as": how.value, "dry_run": dry_run})
    else:
        _tell(told, how, dry_run=dry_run)
    return Exit.INCOMPLETE if told.refused else Exit.OK


def _result(how: As, text: str | None) -> Any:
    if text is None:
        return None
    if how is not As.DONE:
        raise Refused(f"a job that is {how.value} has no result", "Leave --result away, or give --as done")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("the result is no JSON", """Give JSON, such as '{"id": 7}' or '"seen"'""") from None


async def _resolve(config: Config, meant: Meant, decision: Decision, *, dry_run: bool) -> Changed:
    told = Changed()
    batch = RETRY_BATCH if decision.how is As.RETRY else BATCH
    async with operations_of(config, patient=True) as operations:
        with bar(len(meant.names) or None, "resolve") as progress:
            async for part in picked(operations, meant, batch):
                if dry_run:
                    told += await look(operations, part.letters, decision)
                else:
                    told += await resolve_jobs(operations, part.letters, decision)
                told += unknown(part.unknown)
                progress.at(told.changed + sum(told.refused.values()), f"{told.changed} jobs")
    return told


def unknown(names: Sequence[str]) -> Changed:
    """What becomes of names that are of no unresolved job."""
    return Changed(refused={Refusal.NOT_UNRESOLVED: len(names)} if names else {})


def _document(told: Changed) -> dict[str, Any]:
    return {"changed": told.changed, "refused": told.refused, "redrives": told.redrives}


def _tell(told: Changed, how: As, *, dry_run: bool) -> None:
    console = people()
    became = {As.DONE: "done", As.DEAD: "dead", As.RETRY: "to run again"}[how]
    console.print(f"{told.changed} jobs {'would be' if dry_run else 'are'} {became}")
    for redrive in told.redrives:
        console.print(f"redrive {redrive} releases them: 'acklast redrive status {redrive}'")
    tell_refused(told.refused)


def tell_refused(refused: Mapping[Refusal, int]) -> None:
    """For people: of how many jobs nothing is done, and why."""
    for why, count in refused.items():
        people().print(f"{count} {_WHY[why]}")
