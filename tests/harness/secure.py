"""The session's broker by TLS: its authority, a user who logs in by certificate, and how to ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from urllib.parse import quote, urlsplit

from dev.certificates import Pair
from dev.rabbitmq import Tls
from harness.broker import Broker


@dataclass(frozen=True, slots=True)
class Secure:
    """``user`` has every right in the test's virtual host and no password; ``pair`` is its certificate."""

    broker: Broker
    tls: Tls
    user: str
    pair: Pair

    @property
    def url(self) -> str:
        """The virtual host by TLS; no user, no password."""
        return f"amqps://127.0.0.1:{self.tls.amqps}/{quote(self.broker.vhost, safe='')}"

    @property
    def url_with_password(self) -> str:
        """The same with the user and the password of the test."""
        login = urlsplit(self.broker.url).netloc.rpartition("@")[0]
        return self.url.replace("//", f"//{login}@", 1)

    @property
    def https(self) -> str:
        """The management API by TLS."""
        return f"https://127.0.0.1:{self.tls.https}"

    def keys(self, *, ca: Path | None = None, pair: Pair | None = None) -> dict[str, str]:
        """The keys of ``[broker]`` for a login by certificate: the user's, unless others are given."""
        pair = pair or self.pair
        return {
            "ca_file": str(ca or self.tls.authority.cert),
            "cert_file": str(pair.cert),
            "key_file": str(pair.key),
            "auth": "external",
        }

    def env(self, url: str = "", **keys: str) -> dict[str, str]:
        """The same as a daemon's environment."""
        keys = self.keys() | keys
        return {
            "ACKLAST_BROKER_URL": url or self.url,
            **{f"ACKLAST__BROKER__{key.upper()}": value for key, value in keys.items() if value},
        }


@contextmanager
def secured(broker: Broker, tls: Tls) -> Iterator[Secure]:
    """Make the user, and its certificate; the user is gone again at the end."""
    user = f"robot-{token_hex(4)}"
    broker.management.call("PUT", f"users/{user}", {"password_hash": "", "tags": ""})
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    broker.management.call("PUT", f"permissions/{quote(broker.vhost, safe='')}/{user}", rights)
    yield Secure(broker, tls, user, tls.authority.issue(user))
    broker.management.call("DELETE", f"users/{user}")
