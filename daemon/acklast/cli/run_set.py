"""``acklast runs set``: another deadline, owner or label for a run that is there."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from acklast.cli.lane_target import As, operations_of, operator_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, plain, say_json
from acklast.cli.run_target import RunName, labels_of, no_such_run
from acklast.cli.spans import parse_moment
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.about import RunAbout, Settings
from acklast.ledger.operate import Operator
from acklast.ledger.run_changes import set_about
from acklast.pacing.controls import Refused

_NONE: Final = "none"


def set_(
    run: RunName,
    deadline: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When it is to be finished (RFC 3339 with an offset), or 'none'."),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Whose it is, or 'none'.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A label; NAME= takes it away. May be repeated."),
    ] = None,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Change what is known of a run: its deadline, its owner, its labels. The audit keeps who did it."""
    settings = settings_of(deadline, owner, label or [])
    before, after = asyncio.run(_set(configured(config), run, settings, operator_of(as_)))
    if as_json:
        say_json({"run": run, "changed": after != before, "before": shown(before), "after": shown(after)})
    else:
        people().print(f"run {run}: {said(after) or 'nothing is said of it'}")
    return Exit.OK


async def _set(config: Config, run: str, settings: Settings, operator: Operator) -> tuple[RunAbout, RunAbout]:
    async with operations_of(config) as operations:
        try:
            changed = await set_about(operations, run, settings, operator)
        except ValueError as error:
            raise Refused(str(error), "Give another one") from None
    if changed is None:
        raise no_such_run(run)
    return changed


def settings_of(deadline: str | None, owner: str | None, label: list[str]) -> Settings:
    """What the options ask for.

    Raises:
        Refused: nothing, or what cannot be read.
    """
    if deadline is None and owner is None and not label:
        raise Refused("nothing is to be set", "Give --deadline, --owner or --label")
    given = {"deadline": deadline, "owner": owner}
    clear = frozenset(name for name, text in given.items() if text == _NONE)
    at = None if deadline is None or "deadline" in clear else parse_moment(deadline)
    return Settings(at, None if "owner" in clear else owner, labels_of(label, may_clear=True), clear)


def shown(about: RunAbout) -> dict[str, object]:
    """What is known of a run, as JSON has it."""
    return {"deadline": plain(about.deadline), "owner": about.owner, "labels": dict(about.labels)}


def said(about: RunAbout) -> str:
    """The same for people, on one line; empty where there is nothing."""
    parts = [f"deadline {plain(about.deadline)}"] if about.deadline else []
    parts += [f"owner {about.owner}"] if about.owner else []
    return ", ".join((*parts, *(f"{name}={value}" for name, value in sorted(about.labels.items()))))
