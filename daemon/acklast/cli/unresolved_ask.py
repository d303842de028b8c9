"""``acklast unresolved reconcile``: people have it found out whether an effect has happened."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer

from acklast.cli.bar import bar
from acklast.cli.dead_changes import Why
from acklast.cli.dead_select import Fingerprint, LaneOption, ReasonOption, RunOption, Since, Until, wanted_of
from acklast.cli.lane_target import operations_of, operator_of, reason_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, safe, say_json
from acklast.cli.spans import parse_span
from acklast.cli.unresolved_changes import tell_refused, unknown
from acklast.cli.unresolved_target import ByOption, Meant, Names, meant_of, picked
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.unresolved import lanes_run
from acklast.ledger.unresolved_asks import Questions, answers, ask
from acklast.ledger.unresolved_changes import BATCH
from acklast.pacing.controls import Refused

_LOOK_S: Final = 0.5
_SHARE: Final = 20
"""A look that takes a second, as that at a million questions, is repeated after twenty."""
_LANES_S: Final = 5.0
"""How often to look whether daemons run the lanes."""


@dataclass(slots=True)
class Asked:
    """What came of the questions. ``unserved``: lanes that no living daemon runs."""

    questions: Questions
    answered: dict[str, int] = field(default_factory=dict)
    unserved: tuple[str, ...] = ()

    @property
    def open(self) -> int:
        return len(self.questions.ids) - sum(self.answered.values())


def reconcile(
    why: Why,
    names: Names = None,
    lane: LaneOption = None,
    run: RunOption = None,
    reason: ReasonOption = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    by: ByOption = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answers.")] = True,
    timeout: Annotated[str | None, typer.Option(help="How long to wait at most: 90s, 30m, 2h, 1d.")] = None,
    as_operator: Annotated[
        str | None,
        typer.Option(
            "--as",
            "--as-operator",
            envvar="ACKLAST_OPERATOR",
            help="Who you are, where the login does not say.",
        ),
    ] = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Have a daemon ask the job type's reconcile whether the effect has happened, under the lane's budget.

    A job that it happened for is done; one that it did not happen for runs again. Ctrl-C ends the waiting
    alone.
    """
    settings = configured(config)
    barred = [name for name, one in settings.lanes.items() if one.http is not None]
    if lane in barred:
        raise Refused(f"lane {lane} sends HTTP requests, which cannot be asked", _REMEDY)
    meant = meant_of(names, by, wanted_of(lane, run, reason, fingerprint, since, until))
    longest_s = parse_span(timeout).total_seconds() if timeout else float("inf")
    who, said = operator_of(as_operator), reason_of(why)
    asked = asyncio.run(_reconcile(settings, meant, said, who, barred, longest_s if wait else None))
    if as_json:
        say_json(_asked_document(asked))
    else:
        _tell_asked(asked, waited=wait)
    return _exit_of(asked, waited=wait)


_REMEDY: Final = "Ask the provider yourself, then 'acklast unresolved resolve --as done, retry or dead'"


async def _reconcile(
    config: Config, meant: Meant, why: str, who: Operator, barred: list[str], longest_s: float | None
) -> Asked:
    asked = Asked(Questions())
    async with operations_of(config, patient=True) as operations:
        async for part in picked(operations, meant, BATCH):
            asked.questions += await ask(operations, part.letters, why, who, barred)
            asked.questions += Questions(refused=unknown(part.unknown).refused)
        lanes = asked.questions.lanes
        asked.unserved = await _say_unserved(operations, lanes, ())
        if longest_s is not None:
            await _wait(operations, asked, lanes, longest_s)
    return asked


async def _wait(operations: Operations, asked: Asked, lanes: frozenset[str], longest_s: float) -> None:
    ids, began = asked.questions.ids, time.monotonic()
    looked_at = began
    with bar(len(ids), "ask") as progress:
        while True:
            began_at = time.monotonic()
            asked.answered = await answers(operations, ids)
            progress.at(len(ids) - asked.open, ", ".join(f"{n} {what}" for what, n in asked.answered.items()))
            now = time.monotonic()
            if not asked.open or now - began >= longest_s:
                return
            if now - looked_at >= _LANES_S:
                looked_at = now
                asked.unserved = await _say_unserved(operations, lanes, asked.unserved)
            await asyncio.sleep(min(max(_LOOK_S, _SHARE * (now - began_at)), longest_s))


async def _say_unserved(
    operations: Operations, lanes: frozenset[str], said: tuple[str, ...]
) -> tuple[str, ...]:
    """On standard error at once: with nobody there it is long to wait."""
    unserved = tuple(sorted(lanes - await lanes_run(operations)))
    for lane in unserved:
        if lane not in said:
            sys.stderr.write(
                f"no living daemon runs lane {safe(lane)}: its jobs are asked about once one does\n"
            )
    return unserved


def _asked_document(asked: Asked) -> dict[str, Any]:
    questions = asked.questions
    told = {effect: asked.answered.get(effect, 0) for effect in _BECAME}
    return {
        "asked": len(questions.ids),
        "joined": questions.joined,
        "refused": questions.refused,
        "open": asked.open,
        **told,
        "unserved": asked.unserved,
    }


_BECAME: Final = {
    "done": "had happened: done",
    "retry": "had not happened, and run again",
    "dead": "had not happened, and their time is over: dead",
    "unresolved": "stay unresolved ('acklast unresolved list' says why)",
    "superseded": "somebody else has decided on meanwhile",
}


def _tell_asked(asked: Asked, *, waited: bool) -> None:
    console, questions = people(), asked.questions
    joined = f", {questions.joined} of them by somebody before" if questions.joined else ""
    console.print(f"{len(questions.ids)} jobs are asked about{joined}")
    for effect, words in _BECAME.items():
        if count := asked.answered.get(effect):
            console.print(f"{count} {words}")
    if waited and asked.open:
        console.print(f"{asked.open} are not answered yet; daemons go on with them")
    tell_refused(questions.refused)


def _exit_of(asked: Asked, *, waited: bool) -> Exit:
    """Whether all that was meant is decided now; without waiting, whether all of it is asked about."""
    undecided = asked.answered.get("unresolved", 0) + asked.answered.get("superseded", 0)
    left = asked.questions.refused or (waited and (asked.open or undecided))
    return Exit.INCOMPLETE if left else Exit.OK
