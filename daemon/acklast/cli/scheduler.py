"""``acklast scheduler``: have the configured schedules fire."""

from __future__ import annotations

import asyncio
from itertools import product

from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.serving import Parts, Service, logging_json, serve
from acklast.config import Config
from acklast.config.app import load_rows
from acklast.config.schedules import insist_on_runs
from acklast.errors import ConfigError, Exit
from acklast.schedule.scheduler import Scheduler
from acklast.stop import early_signals
from acklast.telemetry.catalogue import FIRINGS, OF_SCHEDULERS
from acklast.telemetry.metric import FIRED


def scheduler(config: ConfigPath = CONFIG, as_json: Json = False) -> Exit:
    """Have the configured schedules fire until SIGTERM or SIGINT. Needs the ledger; relays publish the jobs.

    Any number may run. The log goes to standard error; --json makes it JSON lines.
    """
    with early_signals():
        settings = configured(config)
        if not settings.schedules:
            raise ConfigError(f"{settings.path} has no schedule", "Add a table [schedules.<name>]")
        insist_on_runs(settings.schedules)
        load_rows(settings)
        return asyncio.run(_scheduler(logging_json(settings, as_json)))


async def _scheduler(config: Config) -> Exit:
    service = Service(
        "scheduler",
        config.health.scheduler_listen,
        "giving firings back",
        OF_SCHEDULERS,
        [(FIRINGS, labels) for labels in product(config.schedules, FIRED)],
        {"schedules": list(config.schedules)},
    )

    def make(parts: Parts) -> Scheduler:
        return Scheduler(config, parts.ledger, parts.emitter, parts.worker, tell=parts.tell)

    return await serve(config, service, make)
