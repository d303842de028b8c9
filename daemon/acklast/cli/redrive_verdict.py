"""``acklast redrive verdict``: what a redrive has found, and what a person makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from acklast.cli.lane_target import As, operations_of, operator_of, reason_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, safe, say_json
from acklast.cli.redrive_given import RedriveId, Tolerate, parse_part
from acklast.cli.redrive_view import document, headline, tell
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger import redrive_changes as changes
from acklast.ledger.operate import Operator
from acklast.ledger.redrives import Redrive, one
from acklast.pacing.controls import Refused


class Answer(StrEnum):
    GO_ON = "go-on"
    STOP = "stop"


def verdict(
    redrive: RedriveId,
    answer: Annotated[
        Answer | None, typer.Argument(help="go-on: accept what has failed; stop: end it. Without: show it.")
    ] = None,
    why: Annotated[str | None, typer.Option("--why", help="Why; it stays in the audit.")] = None,
    tolerate: Tolerate = None,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show why a redrive has stopped or asks, beside what its letters had failed of; or answer it."""
    settings = configured(config)
    if answer is None:
        if why is not None or tolerate is not None:
            raise Refused("there is no verdict", f"Say it: acklast redrive verdict {redrive} go-on --why ...")
        found = asyncio.run(_shown(settings, redrive))
    else:
        if why is None:
            raise Refused("it is not said why", "Give --why: whoever is on call next reads it")
        if tolerate is not None and answer is Answer.STOP:
            raise Refused("--tolerate is for what goes on", "Leave it out, or say go-on")
        part = None if tolerate is None else parse_part(tolerate)
        found = asyncio.run(_answered(settings, redrive, answer, part, reason_of(why), operator_of(as_)))
    if as_json:
        say_json(document(found))
    elif answer is None:
        _tell(found)
    else:
        tell(people(), found)
    return Exit.OK


async def _shown(config: Config, redrive: int) -> Redrive:
    async with operations_of(config) as operations:
        return await one(operations, redrive)


async def _answered(
    config: Config, redrive: int, answer: Answer, tolerate: float | None, why: str, operator: Operator
) -> Redrive:
    async with operations_of(config) as operations:
        match answer:
            case Answer.GO_ON:
                await changes.go_on(operations, redrive, tolerate, why, operator)
            case Answer.STOP:
                await changes.stop(operations, redrive, why, operator)
        return await one(operations, redrive)


# --- for people -----------------------------------------------------------------------------------------


def _tell(redrive: Redrive) -> None:
    console = people()
    console.print(headline(redrive))
    for line in comparison(redrive):
        console.print(f"  {line}")
    if redrive.status.waits:
        console.print(
            f'  it goes on, this being accepted:  acklast redrive verdict {redrive.id} go-on --why "..."'
        )
        console.print(
            f'  it ends here:                     acklast redrive verdict {redrive.id} stop --why "..."'
        )


def comparison(redrive: Redrive) -> Iterator[str]:
    """What a daemon has found of a redrive, line by line. Whatever it has said can be shown."""
    said = redrive.said or {}
    if not said.get("verdict"):
        yield "no daemon has found anything to say of it yet"
        return
    yield _why(redrive, said)
    step, steps = said.get("step"), redrive.steps or ()
    of = f"step {step + 1} of {len(steps)}, " if isinstance(step, int) else ""
    yield f"found at {said.get('at', '-')}, {of}{said.get('released', '?')} released"
    for kind in _list_of(said, "kinds"):
        yield _kind(kind)
    if isinstance(live := said.get("live"), Mapping):
        yield (
            f"the lane's other jobs: {live.get('since', '?')} failed since the step began,"
            f" {live.get('before', '?')} in as long before the start"
        )


def _kind(kind: Mapping[str, Any]) -> str:
    failed = [safe(str(kind[name])) for name in ("reason", "failure") if kind.get(name)]
    live = f"; {kind['live']} other jobs failed alike since the step began" if kind.get("live") else ""
    return (
        f"{kind.get('count', '?'):>7}  {safe(str(kind.get('outcome', '?')))}: {'  '.join(failed) or '-'},"
        f" such as {safe(str(kind.get('key', '?')))}{live}"
    )


def _list_of(said: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = said.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


_WHY: Final = {
    "same_failure": "letters failed again of what they had failed of: it is not mended",
    "other_outcome": "letters failed of something else, or came to another end: is that all right?",
    "live_fails_more": "the lane's other jobs fail more since it runs: is it the redrive that harms them?",
}


def _why(redrive: Redrive, said: Mapping[str, Any]) -> str:
    why = said.get("why")
    if not redrive.status.waits:
        return f"what it found last: {safe(str(why or said['verdict']))}"
    return _WHY.get(str(why), safe(str(why)))
