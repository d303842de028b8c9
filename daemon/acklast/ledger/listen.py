"""A connection that also hears what other daemons say, by LISTEN and NOTIFY."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from acklast.ledger.connect import Address, Connection, Link

_COMMAND_TIMEOUT_S: Final = 5.0


class ListeningLink(Link):
    """A link that listens on a channel whenever it is connected."""

    def __init__(
        self,
        address: Address,
        channel: str,
        on_heard: Callable[[str], None],
        on_lost: Callable[[], None],
    ) -> None:
        """``on_heard`` is given each notice. ``on_lost``: the connection has ended, so notices may
        have been missed.
        """
        super().__init__(address, timeout_s=_COMMAND_TIMEOUT_S)
        self._channel = channel
        self._on_heard = on_heard
        self._on_lost = on_lost
        self._closing = False

    async def _greet(self, connection: Connection) -> None:
        await connection.add_listener(self._channel, self._hear)
        connection.add_termination_listener(self._end)

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self._on_heard(str(payload))

    def _end(self, _connection: Any) -> None:
        if not self._closing:
            self._on_lost()

    async def close(self) -> None:
        self._closing = True
        await super().close()
