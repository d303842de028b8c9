"""The proxies that tests put in front of a server."""

from __future__ import annotations

from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from dev.proxy import Proxy

__all__ = ["Away", "Proxy"]


class Away:
    """A proxy before a server, which can be away: its connections are reset, and new ones refused.

    With ``hole`` it only falls silent: whatever either side says is lost, and nobody is told.
    """

    def __init__(self, url: str, *, hole: bool = False) -> None:
        self._url, self._port = url, 0
        self._hole = hole
        self._stack = AsyncExitStack()
        self.proxy: Proxy | None = None

    async def here(self) -> str:
        """The server can be reached; the URL by which."""
        if self.proxy is None:
            self.proxy = await self._stack.enter_async_context(Proxy(self._url, self._port))
            self._port = urlsplit(self.proxy.url).port or 0
        self.proxy.swallow(False)
        return self.proxy.url

    async def gone(self) -> None:
        if self._hole and self.proxy is not None:
            self.proxy.swallow(True)
        else:
            await self.close()

    async def close(self) -> None:
        """End the proxy, and whatever goes through it."""
        self.proxy = None
        await self._stack.aclose()
