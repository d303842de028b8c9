"""How the two servers are reached: the tables ``[broker]`` and ``[ledger]``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from acklast.config.secrets import check_broker_url, check_dsn, masked, split_urls
from acklast.config.section import PositiveS, Section
from acklast.config.tls import Auth, Tls


def _off(value: Any) -> Any:
    return 0.0 if value == "off" else value


def _off_or_seconds(value: float) -> float:
    # Shorter pauses would be a pass without end.
    if 0 < value < 1:
        raise ValueError('must be at least 1, or "off"')
    return value


BrokerUrl = Annotated[SecretStr, AfterValidator(check_broker_url)]
Dsn = Annotated[SecretStr, AfterValidator(check_dsn)]
OffOrS = Annotated[
    float, BeforeValidator(_off), Field(ge=0, allow_inf_nan=False), AfterValidator(_off_or_seconds)
]
"""Seconds, at least 1; ``"off"`` is 0."""


class Receiver(StrEnum):
    """What reads deliveries from the socket."""

    BULK = "bulk"
    """acklast's own: everything that one read brings, and no message can end the connection."""
    LIBRARY = "library"
    """The client library's reader: one frame at a time."""


class Broker(Section):
    """How to reach RabbitMQ. ``urls`` are tried in turn. ``load`` has made the files' paths absolute."""

    urls: Annotated[tuple[BrokerUrl, ...], BeforeValidator(split_urls), Field(min_length=1)]
    heartbeat_s: Annotated[int, Field(ge=1, le=3600)] = 15
    connect_timeout_s: PositiveS = 5.0
    publish_timeout_s: PositiveS = 10.0
    longest_unacked_s: Annotated[float, Field(ge=1, le=86_400)] = 900.0
    management_url: Annotated[str, Field(pattern=r"^https?://[^/@\s]+")] | None = None
    receiver: Receiver = Receiver.BULK
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    auth: Auth = Auth.PLAIN

    @model_validator(mode="after")
    def _tls_fits(self) -> Self:
        found = list(self._tls().problems([url.get_secret_value() for url in self.urls]))
        if found:
            text = "; ".join(f"{key} {valid}" for key, _, valid in found)
            raise PydanticCustomError("several", "{text}", {"text": text, "problems": found})
        return self

    def _tls(self) -> Tls:
        return Tls(self.ca_file, self.cert_file, self.key_file, self.auth)

    def addresses(self) -> tuple[str, ...]:
        """The URLs, with passwords and with what TLS needs: for connecting only, never for a log."""
        return tuple(self._tls().told_to(url.get_secret_value()) for url in self.urls)

    def shown(self) -> tuple[str, ...]:
        """The URLs with their passwords masked."""
        return tuple(masked(url) for url in self.addresses())


class LedgerServer(Section):
    """How to reach Postgres, how long a worker session lives without renewing its lease, how often expired
    rows are removed, and how often jobs are sought that the broker should have and has not."""

    dsn: Dsn
    lease_s: Annotated[float, Field(ge=1, le=3600)] = 15.0
    pool_size: Annotated[int, Field(ge=1, le=1000)] = 4
    allow_unsafe_server: bool = False
    prune_every_s: OffOrS = 900.0
    reconcile_every_s: OffOrS = 900.0

    def address(self) -> str:
        """The DSN, password included: for connecting only, never for a log."""
        return self.dsn.get_secret_value()

    def shown(self) -> str:
        """The DSN with its password masked."""
        return masked(self.address())
