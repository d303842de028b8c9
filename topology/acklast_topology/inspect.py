"""What the management API shows and AMQP does not: arguments, bindings, policies that lose messages.

Pure: it compares lists as the API gives them with the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

from acklast_topology.finding import Finding, Found, missing
from acklast_topology.plan import DELIVERY_LIMIT, Binding, Exchange, Plan, Queue

Rows = Sequence[Mapping[str, Any]]

SMALL_DELIVERY_LIMIT: Final = 1000
"""A lower limit diverts jobs that a long outage or a few deploys have had delivered again and again."""

_REPLACE: Final = (
    "Its arguments cannot be changed: let it run empty, delete it, and run `acklast topology apply`"
)


def inspect(plan: Plan, exchanges: Rows, queues: Rows, bindings: Rows) -> list[Finding]:
    """Everything in a virtual host that is not as planned, or is not safe; nothing where all is well."""
    there = {row["name"]: row for row in exchanges}
    found = [finding for one in plan.exchanges for finding in _exchange(one, there.get(one.name))]
    there = {row["name"]: row for row in queues}
    found += [finding for one in plan.queues for finding in _queue(one, there.get(one.name))]
    return [*found, *_bindings(plan.bindings, bindings)]


def _exchange(planned: Exchange, row: Mapping[str, Any] | None) -> Iterator[Finding]:
    if row is None:
        yield missing("exchange", planned.name, "it is not there")
        return
    wrong = _differences(planned.arguments, row["arguments"])
    if row["type"] != planned.type:
        wrong.append(f"its type is {row['type']}, not {planned.type}")
    if wrong:
        yield Finding("exchange", planned.name, Found.DIFFERS, "; ".join(wrong), _REPLACE)


def _queue(planned: Queue, row: Mapping[str, Any] | None) -> Iterator[Finding]:
    if row is None:
        yield missing("queue", planned.name, "it is not there")
        return
    if row.get("type", "classic") != "quorum":
        detail = f"it is a {row.get('type', 'classic')} queue: a node that is lost takes its messages along"
        yield Finding("queue", planned.name, Found.DIFFERS, detail, _REPLACE)
        return
    if wrong := _differences(planned.arguments, row.get("arguments", {})):
        yield Finding("queue", planned.name, Found.DIFFERS, "; ".join(wrong), _REPLACE)
    policy = row.get("effective_policy_definition") or {}
    for key, why in _dangers(planned, policy):
        name = row.get("policy") or row.get("operator_policy") or "?"
        yield Finding(
            "queue",
            planned.name,
            Found.DIFFERS,
            f"policy {name!r} sets {key} = {policy[key]}: {why}",
            f"Keep the policy from queues of this namespace, or take {key} out of it",
        )


def _dangers(planned: Queue, policy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What of a policy is in force beside the queue's arguments, and harmful.

    Of a time, a length or a limit the lower one of policy and argument holds; of the rest the argument.
    """
    if "expires" in policy:
        yield "expires", "the queue is deleted with its messages when nobody has used it for that long"
    if policy.get("message-ttl", inf) < planned.arguments.get("x-message-ttl", inf):
        yield "message-ttl", "messages leave the queue by the clock, and not by a verdict"
    if policy.get("delivery-limit", DELIVERY_LIMIT) < SMALL_DELIVERY_LIMIT:
        yield "delivery-limit", "jobs are diverted that were only delivered again"


def _differences(planned: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    names = sorted(planned.keys() | there.keys())
    return [
        f"{name} is {there.get(name, 'not set')}, not {planned.get(name, 'to be set')}"
        for name in names
        if planned.get(name) != there.get(name)
    ]


def _bindings(planned: Iterable[Binding], rows: Rows) -> Iterator[Finding]:
    there = {(row["source"], row["destination"], row["routing_key"]) for row in rows}
    for binding in planned:
        if (binding.source, binding.queue, binding.key) not in there:
            name = f"{binding.source} -> {binding.queue} by {binding.key or '(any key)'}"
            yield missing("binding", name, "it is not there")
