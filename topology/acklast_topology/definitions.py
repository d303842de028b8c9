"""The topology for whoever may not let a daemon declare it: RabbitMQ's definitions, and the least rights.

Format: https://www.rabbitmq.com/docs/definitions (``rabbitmqctl import_definitions``, or the management API).
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any, Final

from acklast_topology.names import VERSION, Names
from acklast_topology.plan import Plan

_NOTHING: Final = "^$"


@dataclass(frozen=True, slots=True)
class Permission:
    """What one kind of user may do in the virtual host: three regular expressions over names of objects."""

    role: str
    configure: str
    write: str
    read: str
    tags: tuple[str, ...] = ()

    def lines(self, vhost: str) -> list[str]:
        """The commands that give these rights to a user who is named like the role."""
        rights = shlex.join([self.role, self.configure, self.write, self.read])
        lines = [f"rabbitmqctl set_permissions -p {shlex.quote(vhost)} {rights}"]
        if self.tags:
            lines.append(f"rabbitmqctl set_user_tags {shlex.join([self.role, *self.tags])}")
        return lines


def permissions(names: Names) -> tuple[Permission, ...]:
    """The least that each kind of user needs.

    A daemon that declares (``declare = "apply"``) owns its namespace; one that only verifies configures
    nothing.
    """
    space = re.escape(f"{names.ns}.{VERSION}.")
    all_of_it, ingress, route = f"^{space}", f"{space}in", f"{space}route"
    dead, unrouted = f"{space}[^.]+[.]dead", f"{space}unrouted"
    work = f"{space}[^.]+[.](work|fair[.][0-9]+)"
    return (
        Permission("acklast-declarer", all_of_it, all_of_it, all_of_it),
        # The relay publishes to the ingress exchange, like any application.
        Permission("acklast-daemon", _NOTHING, f"^({ingress}|{route})$", f"^({work}|{dead}|{unrouted})$"),
        Permission("acklast-publisher", _NOTHING, f"^{ingress}$", _NOTHING),
        Permission("acklast-operator", _NOTHING, f"^({ingress}|{route})$", f"^({dead}|{unrouted})$"),
        Permission("acklast-monitor", _NOTHING, _NOTHING, _NOTHING, ("monitoring",)),
    )


def definitions(plan: Plan, vhost: str) -> dict[str, Any]:
    """The plan as RabbitMQ's definitions of one virtual host, which must exist.

    Without users: those have secrets.
    """
    return {
        "exchanges": [
            {
                "name": exchange.name,
                "vhost": vhost,
                "type": exchange.type,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": dict(exchange.arguments),
            }
            for exchange in plan.exchanges
        ],
        "queues": [
            {
                "name": queue.name,
                "vhost": vhost,
                "durable": True,
                "auto_delete": False,
                "arguments": dict(queue.arguments),
            }
            for queue in plan.queues
        ],
        "bindings": [
            {
                "source": binding.source,
                "vhost": vhost,
                "destination": binding.queue,
                "destination_type": "queue",
                "routing_key": binding.key,
                "arguments": {},
            }
            for binding in plan.bindings
        ],
    }
