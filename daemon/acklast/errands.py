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
from acklast.ledger.sampling import Sampling
from acklast.outlook.samples import reckoned
from acklast.pruner import Pruner, keeps_of
from acklast.reconciler import Reconciler
from acklast.redriver import Redriver
from acklast.relay import Relay, publisher_of
from acklast.sampler import Sampler
from acklast.settle import Send
from acklast.telemetry.events import Emitter
from acklast.telemetry.registry import Registry


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
    registry: Registry | None = None,
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
        sampler_of(config, address, connect, emitter, registry),
    ]
    if config.relay.enabled:
        publisher = publisher_of(config, brokers)
        chores.append(Relay(Outbox(address), publisher, emitter, worker, poll_s=config.relay.poll_s))
    return chores


def sampler_of(
    config: Config,
    address: Address,
    connect: Callable[[], Awaitable[AbstractConnection]],
    emitter: Emitter,
    registry: Registry | None,
) -> Sampler:
    """What looks how the fleet stands; it looks at the queues only where somebody collects that."""
    seen = None if registry is None else connect
    sampler = Sampler(config, Sampling(address), seen, emitter, chance=random.random, reckon=reckoned)
    if registry is not None:
        registry.watch(sampler.samples)
        emitter.add(sampler)
    return sampler
