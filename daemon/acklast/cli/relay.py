"""``acklast relay``: publish what is promised in the outbox, without running any lane."""

from __future__ import annotations

import asyncio

from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.serving import Parts, Service, logging_json, serve
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.outbox import Outbox
from acklast.relay import Relay, publisher_of
from acklast.stop import early_signals
from acklast.telemetry.catalogue import OF_RELAYS


def relay(config: ConfigPath = CONFIG, as_json: Json = False) -> Exit:
    """Publish what is promised in the outbox until SIGTERM or SIGINT. Daemons do it too, unless told not to.

    Any number may run. The log goes to standard error; --json makes it JSON lines.
    """
    with early_signals():
        return asyncio.run(_relay(logging_json(configured(config), as_json)))


async def _relay(config: Config) -> Exit:
    service = Service(
        "relay", config.health.relay_listen, "leaving what is not confirmed to others", OF_RELAYS
    )

    def make(parts: Parts) -> Relay:
        return Relay(
            Outbox(parts.ledger),
            publisher_of(config, parts.servers.brokers),
            parts.emitter,
            parts.worker,
            poll_s=config.relay.poll_s,
            tell=parts.tell,
        )

    return await serve(config, service, make)
