"""The chores of one daemon, put together."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

from aio_pika.abc import AbstractConnection

from acklast.asking import Asking
from acklast.chores import Chore
from acklast.config import Config
from acklast.drain import Tasks
from acklast.lane import Lane
from acklast.ledger.api import Ledger
from acklast.ledger.connect import Address
from acklast.ledger.lease import Lease
from acklast.ledger.outbox import Outbox
from acklast.ledger.reconciling import Questions
from acklast.ledger.redriving import Redriving
from acklast.pruner import Pruner, keeps_of
from acklast.reconciler import Reconciler
from acklast.redriver import Redriver
from acklast.relay import Relay, publisher_of
from acklast.settle import Send
from acklast.telemetry.events import Emitter


def chores_of(
    config: Config,
    lanes: Sequence[Lane],
    *,
    ledger: Ledger,
    address: Address,
    lease: Lease,
    brokers: Callable[[], Sequence[str]],
    connect: Callable[[], Awaitable[AbstractConnection]],
    send: Send,
    tasks: Tasks,
    emitter: Emitter,
    worker: str,
) -> list[Chore]:
    """What goes on beside the lanes. ``brokers`` says the broker's URLs of the moment."""
    chance, every_s = random.random, config.ledger.prune_every_s
    questions = Questions(address, list(config.lanes), config.dead.max_redrives)
    chores: list[Chore] = [
        Pruner(ledger, keeps_of(config.lanes), emitter, every_s=every_s, chance=chance),
        Reconciler(config, address, brokers, connect, send, emitter, chance=chance),
        Redriver(
            config,
            Redriving(address),
            lease,
            connect,
            send,
            emitter,
            worker=worker,
            version=config.version,
            most=config.dead.max_redrives,
        ),
        Asking(questions, lanes, tasks, emitter, chance=chance),
    ]
    if config.relay.enabled:
        publisher = publisher_of(config, brokers)
        chores.append(Relay(Outbox(address), publisher, emitter, worker, poll_s=config.relay.poll_s))
    return chores
