"""``acklast run``: the daemon itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.serving import logging_json
from acklast.config import Config, load_app, select
from acklast.errors import Exit
from acklast.handlers.app import App
from acklast.handlers.executor import end_with_the_process
from acklast.runtime import run as run_daemon
from acklast.stop import early_signals


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
    """Run the daemon until SIGTERM or SIGINT, then drain. SIGHUP has it read its configuration again.

    The log goes to standard error; --json makes it JSON lines whatever the configuration says.
    """
    with early_signals():
        settings = configured(config, instance)
        application = load_app(settings)
        # From here on a relative path is the same file wherever a handler may go.
        again = partial(configured, settings.path, instance)
        chosen = _chosen(settings, lane, as_json)
        return asyncio.run(_run(chosen, application, lambda: _chosen(again(), lane, as_json)))


async def _run(config: Config, app: App, read: Callable[[], Config]) -> Exit:
    end_with_the_process()
    return await run_daemon(config, app, read)


def _chosen(config: Config, lanes: list[str] | None, as_json: bool) -> Config:
    """The configuration as the command line wants it."""
    return logging_json(select(config, lanes or []), as_json)
