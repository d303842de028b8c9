"""An aiohttp session for handlers in virtual time: no connection is opened, a function answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias


class Answer:
    """As much of a response as the examples' handlers look at."""

    def __init__(self, status: int, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.headers = headers or {}
        self._body = body

    async def json(self) -> Any:
        return self._body

    def raise_for_status(self) -> None:
        assert self.status < 400, self.status


Respond: TypeAlias = Callable[[str, Any], Answer]
"""From the key that a request carries and its JSON; may raise what a client raises."""


class FakeSession:
    """A downstream that is asked by POST, with the key in the header for it."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self.posts: list[tuple[str, str, Any]] = []
        """Path, key and JSON of each request."""

    @asynccontextmanager
    async def post(self, path: str, *, json: Any, headers: Mapping[str, str]) -> AsyncIterator[Answer]:
        key = headers["Idempotency-Key"].strip('"')
        self.posts.append((path, key, json))
        yield self._respond(key, json)
