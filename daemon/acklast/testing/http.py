"""The downstream of an HTTP lane in a test: answers by script, and no connection is opened."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from acklast.http.client import Answer, CutOff, NotSent, Sending
from acklast.http.request import Request
from acklast.testing.play import Play, key_of
from acklast.testing.process import HERE

__all__ = ["CutOff", "NotSent", "Reply", "Request", "Responder", "ScriptedClient", "replies"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a downstream answers."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


Responder: TypeAlias = Callable[[Request], Reply | Awaitable[Reply]]
"""Answers a request. It may be ``async def`` and take (virtual) time. It raises ``NotSent`` where no
connection could be made, and ``CutOff`` where the answer was lost."""


def replies(*script: Reply | NotSent | CutOff) -> Responder:
    """A downstream that answers like this, one request after the other; the last one repeats."""
    left = list(script)

    def answer(_: Request) -> Reply:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Reply):
            return found
        raise type(found)(found.why)

    return answer


class ScriptedClient:
    """Stands in for the client of an HTTP lane."""

    def __init__(self, answer: Responder, requests: list[Request]) -> None:
        """``requests`` gets every request that is sent."""
        self._answer = answer
        self._requests = requests

    async def send(self, request: Request, *, keep: int, sending: Sending) -> Answer:
        """Ask the responder; raises what it raises."""
        self._requests.append(request)
        what = f"{request.method} {urlsplit(request.url).path}"
        try:
            sending.write()
            found = self._answer(request)
            reply = await found if inspect.isawaitable(found) else found
        except (NotSent, CutOff) as error:
            _note(f"{what}: {type(error).__name__}({error.why})")
            raise
        _note(f"{what}: {reply.status}", status=reply.status)
        return Answer(reply.status, reply.headers, reply.body[:keep], whole=True)

    async def close(self) -> None:
        """There is nothing to close."""


def _note(text: str, **fields: Any) -> None:
    here = HERE.get()
    play = cast("Play", here.process.stage)
    play.story.add("request", text, here.process.name, (here.lane, key_of(here.delivery.raw)), **fields)
