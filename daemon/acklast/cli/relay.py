"""``acklast relay``: publish what is promised in the outbox, without running any lane."""

from __future__ import annotations

import asyncio
import os
import socket

from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.servers import fit_ledger
from acklast.config import Config, LogFormat
from acklast.config.rotation import Servers
from acklast.errors import Exit
from acklast.ledger.outbox import Outbox
from acklast.notify import Notify
from acklast.probes import Probes
from acklast.relay import RELAYING, Relay, publisher_of
from acklast.stop import early_signals, stop_signals
from acklast.telemetry import catalogue as of
from acklast.telemetry import log
from acklast.telemetry.events import Emitter
from acklast.telemetry.registry import process_registry
from acklast.telemetry.spans import Names as Places
from acklast.telemetry.tracing import server_of
from acklast.telemetry.wiring import open_telemetry
from acklast.vitals import Vitals
from acklast.watchdog import Watchdog

_STOP_S = 10.0


def relay(config: ConfigPath = CONFIG, as_json: Json = False) -> Exit:
    """Publish what is promised in the outbox until SIGTERM or SIGINT. Daemons do it too, unless told not to.

    Any number may run. The log goes to standard error; --json makes it JSON lines.
    """
    with early_signals():
        return asyncio.run(_relay(configured(config), as_json))


async def _relay(config: Config, as_json: bool) -> Exit:
    registry = process_registry(of.PUBLISHED_TOTAL, release=config.version)
    to_log = log.configure(config.log.level, LogFormat.JSON if as_json else config.log.format)
    places = Places(config.names.work("{lane}"), server_of(config.broker.addresses()))
    # Its metrics are fetched, not sent.
    env = {**os.environ, "OTEL_METRICS_EXPORTER": "none"}
    telemetry = open_telemetry(env, version=config.version, instance=config.instance, names=places)
    emitter = Emitter(to_log, registry, *telemetry.sinks)
    telemetry.start(emitter)
    servers = Servers(config, os.environ)
    address = await fit_ledger(config, servers)
    worker = f"{config.instance}@{socket.gethostname()}:{os.getpid()}"
    notify = Notify()
    made = Relay(
        Outbox(address),
        publisher_of(config, servers.brokers),
        emitter,
        worker,
        poll_s=config.relay.poll_s,
        tell=notify.status,
    )
    vitals = Vitals()
    watchdog = Watchdog(notify, emitter, vitals.parts)
    listen = config.health.relay_listen
    probes = Probes(listen, config.state_dir, emitter, watchdog.why, metrics=registry.snapshot)
    with stop_signals(emitter) as stop:
        await probes.start()
        made.start()
        vitals.add(made)
        watchdog.start()
        notify.ready(RELAYING)
        emitter.notice("relay.ready", worker=worker)
        await stop.asked.wait()
        watchdog.ending = True
        notify.stopping("leaving what is not confirmed to others", _STOP_S)
        await made.close()
        await watchdog.close()
        await probes.close()
    await telemetry.close()
    return Exit.OK
