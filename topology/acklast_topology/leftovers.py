"""What lies in a namespace and is not in the plan: queues of lanes and buckets that left the configuration,
bindings that somebody else made.

Pure: it reads lists as the management API gives them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from acklast_topology.finding import Finding, Found
from acklast_topology.inspect import Rows, binding_name
from acklast_topology.names import Names, Place
from acklast_topology.plan import Binding, Plan, bindings_of

_PRUNE: Final = "`acklast topology apply --prune` removes what is empty"


@dataclass(frozen=True, slots=True)
class Holding:
    """How many messages a queue holds, those under way included, and how many consumers read it."""

    messages: int
    consumers: int


def unplanned(names: Names, plan: Plan, queues: Rows) -> list[str]:
    """The queues of the namespace that the plan does not name."""
    planned = {names.changing, *(queue.name for queue in plan.queues)}
    return [row["name"] for row in queues if names.owns(row["name"]) and row["name"] not in planned]


def leftover(names: Names, plan: Plan, queue: str, holding: Holding) -> Finding:
    """What to make of a queue that the plan does not name."""
    place = names.place(queue)
    if place is None and queue != names.moving(names.unrouted):
        detail = f"holds {holding.messages} messages; acklast makes no queue of this name"
        return Finding("queue", queue, Found.EXTRA, detail)
    if place is None or place.moving:
        return _moving(queue, holding)
    if holding.consumers:
        detail = (
            f"nothing here names it, and {holding.consumers} consumers read it: a daemon of other settings"
        )
        return Finding("queue", queue, Found.EXTRA, detail)
    if not holding.messages:
        detail = "is empty, and nothing in the configuration names it"
        return Finding("queue", queue, Found.EXTRA, detail, _PRUNE, 0)
    return _held(names, plan, queue, place, holding.messages)


def _held(names: Names, plan: Plan, queue: str, place: Place, messages: int) -> Finding:
    read = names.work(place.lane) in {one.name for one in plan.queues}
    if place.kind == "wait" and read:
        detail = (
            f"holds {messages} jobs, and nothing names it any more: they go to lane {place.lane}'s work queue"
            f" by themselves, within {place.number} s"
        )
        return Finding("queue", queue, Found.EXTRA, detail, f"Once it is empty {_PRUNE}", messages)
    if place.kind == "fair" and read:
        detail = f"holds {messages} jobs, and lane {place.lane} has no fair_by to read them"
        remedy = f"Set fair_by in [lanes.{place.lane}] again until its fair queues are empty; then {_PRUNE}"
        return Finding("queue", queue, Found.LEFT, detail, remedy, messages)
    what = "dead letters" if place.kind == "dead" else "jobs"
    detail = f"holds {messages} {what}, and no daemon reads lane {place.lane}"
    remedy = f"Configure [lanes.{place.lane}] again until its queues are empty; then {_PRUNE}"
    return Finding("queue", queue, Found.LEFT, detail, remedy, messages)


def _moving(queue: str, holding: Holding) -> Finding:
    if not holding.messages:
        detail = "is empty, and left of a change of arguments"
        return Finding("queue", queue, Found.EXTRA, detail, _PRUNE, 0)
    detail = f"holds {holding.messages} messages of a change of arguments that was interrupted"
    remedy = "Run `acklast topology apply --migrate` again: it goes on where it stopped"
    return Finding("queue", queue, Found.LEFT, detail, remedy, holding.messages)


def stray_bindings(names: Names, plan: Plan, bindings: Rows) -> list[Finding]:
    """Bindings from our exchanges or to our queues that acklast would not make: a remark each."""
    planned = frozenset(plan.bindings)
    return [finding for row in bindings for finding in _stray(names, planned, row)]


def _stray(names: Names, planned: frozenset[Binding], row: Mapping[str, Any]) -> Iterator[Finding]:
    source, target, key = row["source"], row["destination"], row["routing_key"]
    to_queue = row.get("destination_type", "queue") == "queue"
    ours = to_queue and names.owns(target)
    if not source or not (names.owns(source) or ours):
        return
    binding = Binding(source, target, key)
    if to_queue and (binding in planned or binding in bindings_of(names, target)):
        return
    detail = "is not acklast's: "
    if ours:
        detail += "messages come into the queue by another way, some perhaps twice"
    else:
        detail += f"copies of messages go to {'queue' if to_queue else 'exchange'} {target} too"
    yield Finding("binding", binding_name(binding), Found.EXTRA, detail, "Remove it if nobody wants that")
