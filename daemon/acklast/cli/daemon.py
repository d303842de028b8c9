"""``acklast run``: the daemon itself."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.config import Config, LogFormat, load_app, select
from acklast.errors import Exit
from acklast.runtime import run as run_daemon


def run(
    config: ConfigPath = CONFIG,
    lane: Annotated[
        list[str] | None, typer.Option("--lane", "-l", help="Work on this lane only; may be repeated.")
    ] = None,
    instance: Annotated[
        str | None, typer.Option(help="This daemon's name: one of its own for each on a host.")
    ] = None,
    as_json: Json = False,
) -> Exit:
    """Run the daemon until SIGTERM or SIGINT, then drain.

    The log goes to standard error; --json makes it JSON lines whatever the configuration says.
    """
    settings = configured(config, instance)
    application = load_app(settings)
    chosen = select(settings, lane or [])
    return asyncio.run(run_daemon(_logging_json(chosen) if as_json else chosen, application))


def _logging_json(config: Config) -> Config:
    log = config.log.model_copy(update={"format": LogFormat.JSON})
    return config.model_copy(update={"log": log})
