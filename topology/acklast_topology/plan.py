"""The topology as data: what must exist on the broker for a set of lanes, and why each argument is there.

``declare.apply`` makes it, ``verify.verify`` looks whether it is there; nothing else declares anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from acklast_topology.ladder import BUCKETS_S
from acklast_topology.names import NAME_RULE, Names, dead_key, fair_key, valid_name, wait_key, work_key

DELIVERY_LIMIT: Final = 100_000
"""Explicit because an absent limit means 20 on RabbitMQ 4.x, and -1 means "drop at once" on 3.x."""

NOTHING: Final[Mapping[str, Sequence[str]]] = {}
"""No fan-out."""

FAIR_QUEUES: Final = range(1, 9)
"""The numbers of a lane's fair queues: so many large flows at a time have one of their own."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    """From an exchange to a queue."""

    source: str
    queue: str
    key: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything in the order in which it is declared: what is referred to comes first."""

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]


def plan_for(
    names: Names,
    lanes: Iterable[str],
    buckets_s: tuple[int, ...] = BUCKETS_S,
    *,
    fair: Iterable[str] = (),
    fan_out: Mapping[str, Sequence[str]] = NOTHING,
) -> Plan:
    """The topology of these lanes, with one wait queue per bucket (seconds).

    ``fair`` names those of them that have fair queues too. ``fan_out`` has names, each with the lanes that
    get what is published to it: all of them are planned, because what comes while one is missing is not kept
    for it.

    Raises:
        ValueError: a name breaks the rule of names or is a fan-out's and a lane's, or a bucket is not a
            whole positive second.
    """
    shared = (lane for lanes in fan_out.values() for lane in lanes)
    wanted, with_fair = tuple(dict.fromkeys((*lanes, *shared))), frozenset(fair)
    _require_valid(wanted, buckets_s)
    _require_apart(fan_out, wanted)
    queues = [_quorum(names.unrouted)]
    for lane in wanted:
        queues += _lane_queues(names, lane, buckets_s)
    for lane in (lane for lane in wanted if lane in with_fair):
        # A dead letter of theirs goes where one of the work queue does.
        dead = _dead_letters_to(names, dead_key(lane))
        queues += [_quorum(names.fair(lane, number), dead) for number in FAIR_QUEUES]
    bindings = [binding for queue in queues for binding in bindings_of(names, queue.name)]
    bindings += [
        Binding(names.ingress, names.work(lane), key)
        for name, to in fan_out.items()
        for key in _outside_keys(name)
        for lane in to
    ]
    return Plan(_exchanges(names), tuple(queues), tuple(bindings))


def bindings_of(names: Names, queue: str) -> list[Binding]:
    """How a queue of this name is reached, planned or not; nothing for a name that is not acklast's."""
    if queue in (names.unrouted, names.moving(names.unrouted)):
        return [Binding(names.unrouted, queue, "")]
    place = names.place(queue)
    if place is None:
        return []
    lane = place.lane
    match place.kind:
        case "work":
            from_outside = [Binding(names.ingress, queue, key) for key in _outside_keys(lane)]
            return [*from_outside, Binding(names.route, queue, work_key(lane))]
        case "wait":
            return [Binding(names.route, queue, wait_key(lane, place.number))]
        case "fair":
            return [Binding(names.route, queue, fair_key(lane, place.number))]
        case _:
            return [Binding(names.route, queue, dead_key(lane))]


def _outside_keys(name: str) -> tuple[str, str]:
    """The keys under which a lane or a fan-out takes what is published."""
    # "#" matches no word too, but says so to nobody who reads the bindings: both are there.
    return name, f"{name}.#"


def _exchanges(names: Names) -> tuple[Exchange, ...]:
    return (
        # A fanout, so that the unrouted queue takes a message whatever its routing key is.
        Exchange(names.unrouted, "fanout"),
        # Not declared as AMQP "internal", although only acklast uses it: the daemon itself publishes retries
        # to it, and a broker refuses every client's publish to an internal exchange. No alternate exchange
        # either: a retry that finds no queue must come back to the daemon, not vanish into a side queue.
        Exchange(names.route, "direct"),
        # A publisher's typo is kept, seen, and can be sent again.
        Exchange(names.ingress, "topic", {"alternate-exchange": names.unrouted}),
    )


def _lane_queues(names: Names, lane: str, buckets_s: tuple[int, ...]) -> list[Queue]:
    waits = [
        _quorum(
            names.wait(lane, seconds),
            {"x-message-ttl": seconds * 1000, **_dead_letters_to(names, work_key(lane))},
        )
        for seconds in buckets_s
    ]
    # The dead queue has no TTL, no length limit and no exchange to go on to: what is in it stays.
    return [
        _quorum(names.work(lane), _dead_letters_to(names, dead_key(lane))),
        *waits,
        _quorum(names.dead(lane)),
    ]


def _quorum(name: str, more: Mapping[str, Any] | None = None) -> Queue:
    return Queue(
        name,
        {
            "x-queue-type": "quorum",
            # A full queue refuses the publisher, who knows and can try again; the default drops the oldest.
            "x-overflow": "reject-publish",
            "x-delivery-limit": DELIVERY_LIMIT,
            **(more or {}),
        },
    )


def _dead_letters_to(names: Names, key: str) -> dict[str, Any]:
    return {
        "x-dead-letter-exchange": names.route,
        "x-dead-letter-routing-key": key,
        # The default, at-most-once, loses messages when the target is full or away.
        "x-dead-letter-strategy": "at-least-once",
    }


def _require_apart(fan_out: Mapping[str, Sequence[str]], lanes: tuple[str, ...]) -> None:
    for name in fan_out:
        if not valid_name(name):
            raise ValueError(f"fan-out {name!r} is not valid: use {NAME_RULE}")
        if name in lanes:
            raise ValueError(f"fan-out {name!r} has the name of a lane: use another")


def _require_valid(lanes: tuple[str, ...], buckets_s: tuple[int, ...]) -> None:
    for lane in lanes:
        if not valid_name(lane):
            raise ValueError(f"lane {lane!r} is not valid: use {NAME_RULE}")
    if not buckets_s or min(buckets_s) < 1 or len(set(buckets_s)) != len(buckets_s):
        raise ValueError(
            f"wait buckets {buckets_s!r} are not valid: use different whole seconds, each at least 1"
        )
