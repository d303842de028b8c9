"""Credentials that change under a running daemon: a new connection is made with what the files say then."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from acklast.config.load import load
from acklast.config.models import Config
from acklast.errors import ConfigError


class Servers:
    """Where the broker and the ledger are, by the configuration's files as they are now.

    A file that is being written, or is gone, changes nothing: the last good values hold.
    """

    def __init__(self, config: Config, env: Mapping[str, str]) -> None:
        self._last = config
        self._env = env

    def brokers(self) -> tuple[str, ...]:
        """The broker's URLs, passwords included."""
        return self._now().broker.addresses()

    def ledger(self) -> str:
        """The ledger's DSN, password included."""
        return self._now().ledger.address()

    def _now(self) -> Config:
        with suppress(ConfigError):
            self._last = load(self._last.path, self._env, instance=self._last.instance)
        return self._last
