"""What is exported for a broker that others administer: definitions, and the least rights."""

from __future__ import annotations

import re
import shlex

import pytest

from acklast_topology.definitions import Permission, definitions, permissions
from acklast_topology.names import Names
from acklast_topology.plan import plan_for

NAMES = Names("my-jobs")
PLAN = plan_for(NAMES, ["rent", "mail"])
ROLES = {permission.role: permission for permission in permissions(NAMES)}


def test_the_definitions_hold_all_of_the_plan() -> None:
    written = definitions(PLAN, "prod")
    assert {one["name"]: one["arguments"] for one in written["queues"]} == {
        queue.name: dict(queue.arguments) for queue in PLAN.queues
    }
    assert {(one["name"], one["type"]) for one in written["exchanges"]} == {
        (exchange.name, exchange.type) for exchange in PLAN.exchanges
    }
    assert {(one["source"], one["destination"], one["routing_key"]) for one in written["bindings"]} == {
        (binding.source, binding.queue, binding.key) for binding in PLAN.bindings
    }
    assert {one["vhost"] for kind in written.values() for one in kind} == {"prod"}
    assert all(one["durable"] for one in (*written["queues"], *written["exchanges"]))


@pytest.mark.parametrize(
    ("role", "right", "name", "may"),
    [
        ("acklast-declarer", "configure", NAMES.wait("rent", 30), True),
        ("acklast-declarer", "configure", "my-jobs.v2.rent.work", False),
        ("acklast-declarer", "configure", "other.my-jobs.v1.in", False),
        ("acklast-daemon", "configure", NAMES.work("rent"), False),
        ("acklast-daemon", "read", NAMES.work("rent"), True),
        ("acklast-daemon", "read", NAMES.fair("rent", 8), True),
        ("acklast-daemon", "read", NAMES.wait("rent", 30), False),
        ("acklast-daemon", "write", NAMES.route, True),
        ("acklast-daemon", "write", NAMES.ingress, True),
        ("acklast-publisher", "write", NAMES.ingress, True),
        ("acklast-publisher", "write", NAMES.route, False),
        ("acklast-publisher", "write", NAMES.ingress + "x", False),
        ("acklast-publisher", "read", NAMES.work("rent"), False),
        ("acklast-operator", "read", NAMES.dead("rent"), True),
        ("acklast-operator", "read", NAMES.unrouted, True),
        ("acklast-operator", "read", NAMES.work("rent"), False),
        ("acklast-monitor", "read", NAMES.work("rent"), False),
    ],
)
def test_each_role_may_do_what_it_needs_and_no_more(role: str, right: str, name: str, may: bool) -> None:
    # RabbitMQ looks for the expression anywhere in the name.
    assert bool(re.search(getattr(ROLES[role], right), name)) is may


def test_the_lines_are_safe_in_a_shell() -> None:
    permission = Permission("a role", "^$", "^x[.]in$", "^$", ("monitoring",))
    assert [shlex.split(line) for line in permission.lines("/a b")] == [
        ["rabbitmqctl", "set_permissions", "-p", "/a b", "a role", "^$", "^x[.]in$", "^$"],
        ["rabbitmqctl", "set_user_tags", "a role", "monitoring"],
    ]
