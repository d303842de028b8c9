"""RabbitMQ's management API, as far as tests and tools use it."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Management:
    """The management plugin's HTTP API: a virtual host in milliseconds, where rabbitmqctl takes a second."""

    base: str
    user: str
    password: str

    @classmethod
    def beside(cls, amqp_url: str, base: str | None = None) -> Management:
        """The API of the broker at ``amqp_url``: at ``base``, or at the usual port of the same host."""
        parts = urlsplit(amqp_url)
        default = f"http://{parts.hostname or 'localhost'}:15672"
        return cls(
            (base or default).rstrip("/"),
            unquote(parts.username or "guest"),
            unquote(parts.password or "guest"),
        )

    def call(self, method: str, path: str, body: Any = None, *, timeout_s: float = 30) -> Any:
        """One call; the decoded answer, or None where there is none.

        Raises:
            urllib.error.URLError: no answer, or one that is not a success.
        """
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        request = urllib.request.Request(  # noqa: S310 - the base comes from us or from the developer
            f"{self.base}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 - as above
            text = answer.read()
        return json.loads(text) if text else None

    def answers(self) -> bool:
        try:
            # The plugin speaks before the node counts as running, and answers this with an error before.
            self.call("GET", "overview", timeout_s=2)
        except (OSError, ValueError):
            return False
        return True

    def create_vhost(self, name: str) -> None:
        vhost = quote(name, safe="")
        self.call("PUT", f"vhosts/{vhost}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.call("PUT", f"permissions/{vhost}/{quote(self.user, safe='')}", everything)

    def delete_vhost(self, name: str) -> None:
        self.call("DELETE", f"vhosts/{quote(name, safe='')}")
