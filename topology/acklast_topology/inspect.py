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

LOOKS_S: Final = 30.0
"""Time for a daemon to see that a delivery is held too long, and for a carrier to be confirmed."""
_REPLACE: Final = "Run `acklast topology apply --migrate`: it is replaced, and loses nothing"


def inspect(
    plan: Plan,
    exchanges: Rows,
    queues: Rows,
    bindings: Rows,
    policies: Rows | None = (),
    *,
    longest_unacked_s: float = 0.0,
) -> list[Finding]:
    """Everything in a virtual host that is not as planned, or is not safe; nothing where all is well.

    ``policies`` are of both kinds, an operator's too; None where this user may not see them.
    ``longest_unacked_s`` is how long a daemon holds a delivery, where one is to consume.
    """
    there = {row["name"]: row for row in exchanges}
    found = [finding for one in plan.exchanges for finding in _exchange(one, there.get(one.name), policies)]
    there = {row["name"]: row for row in queues}
    found += [finding for one in plan.queues for finding in _queue(one, there.get(one.name))]
    for one in plan.queues:
        if "x-message-ttl" not in one.arguments:  # what waits there is consumed by nobody
            found += _impatient(one.name, there.get(one.name, {}), longest_unacked_s)
    return [*found, *_bindings(plan.bindings, bindings)]


def _exchange(planned: Exchange, row: Mapping[str, Any] | None, policies: Rows | None) -> Iterator[Finding]:
    if row is None:
        yield missing("exchange", planned.name, "it is not there")
        return
    wrong = _differences(planned.arguments, row["arguments"])
    if row["type"] != planned.type:
        wrong.append(f"its type is {row['type']}, not {planned.type}")
    if row.get("internal"):
        wrong.append("it is internal: nobody may publish to it")
    if wrong:
        yield Finding("exchange", planned.name, Found.DIFFERS, "; ".join(wrong), _REPLACE)
    if "alternate-exchange" not in planned.arguments:
        yield from _diverted(planned.name, row, policies)


def _diverted(name: str, row: Mapping[str, Any], policies: Rows | None) -> Iterator[Finding]:
    """Of an alternate exchange the argument holds; where there is none a policy gives one."""
    policy = row.get("policy")
    if not policy:
        return
    if policies is None:
        detail = f"policy {policy!r} is in force on it, and what it sets cannot be seen"
        yield Finding("policy", name, Found.UNSEEN, detail, "Give the user the tag `policymaker` too")
        return
    for one in policies:
        if one["name"] == policy and "alternate-exchange" in one["definition"]:
            other = one["definition"]["alternate-exchange"]
            yield Finding(
                "policy",
                name,
                Found.DIFFERS,
                f"policy {policy!r} sets alternate-exchange = {other}: what finds no queue must come back to"
                " its publisher, and goes there instead",
                _keep_away("alternate-exchange"),
            )


def _queue(planned: Queue, row: Mapping[str, Any] | None) -> Iterator[Finding]:
    if row is None:
        yield missing("queue", planned.name, "it is not there")
        return
    messages = row.get("messages")
    if row.get("type", "classic") != "quorum":
        detail = f"it is a {row.get('type', 'classic')} queue: a node that is lost takes its messages along"
        yield Finding("queue", planned.name, Found.DIFFERS, detail, _REPLACE, messages)
    elif wrong := _differences(planned.arguments, row.get("arguments", {})):
        yield Finding("queue", planned.name, Found.DIFFERS, "; ".join(wrong), _REPLACE, messages)
    policy = row.get("effective_policy_definition") or {}
    for key, why in _dangers(planned, policy):
        detail = f"{_policies(row)} sets {key} = {policy[key]}: {why}"
        yield Finding("policy", planned.name, Found.DIFFERS, detail, _keep_away(key))


def _impatient(name: str, row: Mapping[str, Any], longest_unacked_s: float) -> Iterator[Finding]:
    """A consumer timeout (RabbitMQ 3.12 and newer take it from a policy) that a daemon does not keep."""
    timeout_s = (row.get("effective_policy_definition") or {}).get("consumer-timeout", inf) / 1000
    if timeout_s < longest_unacked_s + LOOKS_S:
        detail = (
            f"{_policies(row)} sets consumer-timeout = {timeout_s:g} s: a daemon holds a delivery for up to"
            f" {longest_unacked_s:g} s, and each that is held too long brings back all of its channel's"
        )
        enough_s = longest_unacked_s + LOOKS_S
        remedy = f"Have the policy say {enough_s * 1000:.0f} or more, or set broker.longest_unacked_s lower"
        yield Finding("policy", name, Found.DIFFERS, detail, remedy)


def _policies(row: Mapping[str, Any]) -> str:
    """Who sets what is in force: the broker shows only what came of it."""
    kinds = {"policy": row.get("policy"), "operator policy": row.get("operator_policy")}
    return " or ".join(f"{kind} {name!r}" for kind, name in kinds.items() if name) or "a policy"


def _keep_away(key: str) -> str:
    return f"Keep the policy from this namespace, or take {key} out of it"


def _dangers(planned: Queue, policy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What of a policy is in force beside the queue's arguments, and harmful.

    In a quorum queue the policy's overflow holds, of a time, a length or a limit the lower one of policy and
    argument, and of dead-lettering the argument.
    """
    if "expires" in policy:
        yield "expires", "the queue is deleted with its messages when nobody has used it for that long"
    if policy.get("message-ttl", inf) < planned.arguments.get("x-message-ttl", inf):
        yield "message-ttl", "messages leave the queue by the clock, and not by a verdict"
    if policy.get("delivery-limit", DELIVERY_LIMIT) < SMALL_DELIVERY_LIMIT:
        yield "delivery-limit", "jobs are diverted that were only delivered again"
    if policy.get("overflow", "reject-publish") != "reject-publish":
        yield "overflow", "a full queue drops its oldest messages, and dead letters go at most once"
    if "dead-letter-exchange" in policy and "x-dead-letter-exchange" not in planned.arguments:
        yield "dead-letter-exchange", "what is kept here leaves for an exchange that is not acklast's"


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
            yield missing("binding", binding_name(binding), "it is not there")


def binding_name(binding: Binding) -> str:
    """A binding in words."""
    return f"{binding.source} -> {binding.queue} by {binding.key or '(any key)'}"
