"""``acklast scheduler``: have the configured schedules fire."""

from __future__ import annotations

import asyncio
import os
import socket
from itertools import product

from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.servers import fit_ledger
from acklast.config import Config, LogFormat
from acklast.config.app import load_rows
from acklast.config.rotation import Servers
from acklast.config.schedules import insist_on_runs
from acklast.errors import ConfigError, Exit
from acklast.notify import Notify
from acklast.probes import Probes
from acklast.schedule.scheduler import Scheduler
from acklast.stop import early_signals, stop_signals
from acklast.telemetry import catalogue as of
from acklast.telemetry import log
from acklast.telemetry.events import Emitter
from acklast.telemetry.metric import FIRED
from acklast.telemetry.registry import process_registry
from acklast.vitals import Vitals
from acklast.watchdog import Watchdog

_STOP_S = 10.0


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
        return asyncio.run(_scheduler(settings, as_json))


async def _scheduler(config: Config, as_json: bool) -> Exit:
    registry = process_registry(of.FIRINGS, release=config.version)
    for labels in product(config.schedules, FIRED):
        registry.count(of.FIRINGS, *labels, by=0)
    to_log = log.configure(config.log.level, LogFormat.JSON if as_json else config.log.format)
    emitter = Emitter(to_log, registry)
    address = await fit_ledger(config, Servers(config, os.environ))
    worker = f"{config.instance}@{socket.gethostname()}:{os.getpid()}"
    notify = Notify()
    made = Scheduler(config, address, emitter, worker, tell=notify.status)
    vitals = Vitals()
    watchdog = Watchdog(notify, emitter, vitals.parts)
    listen = config.health.scheduler_listen
    probes = Probes(listen, config.state_dir, emitter, watchdog.why, metrics=registry.snapshot)
    with stop_signals(emitter) as stop:
        await probes.start()
        made.start()
        vitals.add(made)
        watchdog.start()
        notify.ready(made.text())
        emitter.notice("scheduler.ready", worker=worker, schedules=list(config.schedules))
        await stop.asked.wait()
        notify.stopping("giving firings back", _STOP_S)
        watchdog.ending = True
        await made.close()
        await watchdog.close()
        await probes.close()
        emitter.notice("scheduler.stopped")
    return Exit.OK
