"""The handler of a lane that needs no Python: it sends the job's request and reads what the answer means."""

from __future__ import annotations

import ssl
from asyncio import CancelledError
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from acklast import __version__
from acklast.errors import Interrupted, Permanent, Transient, Unknown
from acklast.handlers.app import JobType
from acklast.handlers.calling import calling_of
from acklast.handlers.context import Context
from acklast.handlers.payload import InvalidPayload
from acklast.handlers.signature import Function
from acklast.handlers.threads import Threads
from acklast.http.classify import StatusRules, classify, error_for
from acklast.http.client import Answer, Client, Connecting, CutOff, LedAway, NotSent, Sending
from acklast.http.request import Request, RequestTemplate
from acklast.http.templates import Unrenderable
from acklast.outcome import Done
from acklast_topology.contract import Envelope

ANY_TYPE: Final = "any type"
"""The name of an HTTP lane's only job type, which takes whatever comes."""

_HIDDEN: Final = "***"


@dataclass(frozen=True, slots=True)
class HttpLane:
    """Everything that an HTTP lane's deliveries are made of."""

    lane: str
    request: RequestTemplate
    rules: StatusRules
    connecting: Connecting
    idempotency_header: str = "Idempotency-Key"
    """The header that carries the key; empty for none. One that the templates set is left alone."""
    excerpt_bytes: int = 0
    """How much of the answer's body is kept in the job's result."""
    timeout_s: float | None = None
    """For one attempt; None: the lane's own."""


class Sends(Protocol):
    """What sends a lane's requests: the client, or what stands in for it in a test."""

    async def send(self, request: Request, *, keep: int, sending: Sending) -> Answer:
        """Send once and read the answer; raises as ``Client.send``."""

    async def close(self) -> None:
        """Let go of every connection."""


def http_job(spec: HttpLane, client: Sends | None = None) -> JobType:
    """The job type of an HTTP lane. ``client``: what sends its requests, instead of one of its own."""
    sender = _Sender(spec, client or Client(spec.connecting, f"acklast/{__version__}"))
    return JobType(
        name=ANY_TYPE,
        lane=spec.lane,
        handler=Function(call=sender.handle, takes_context=True, threaded=False, source=__file__),
        decode=sender.request_for,
        threads=Threads(),
        timeout_s=spec.timeout_s,
        close=sender.client.close,
    )


class _Sender:
    def __init__(self, spec: HttpLane, client: Sends) -> None:
        self._spec = spec
        self.client = client

    def request_for(self, envelope: Envelope) -> Request:
        """Raises ``InvalidPayload`` where the job has not what the templates name."""
        try:
            return self._spec.request.render(envelope)
        except Unrenderable as error:
            raise InvalidPayload(error.detail) from None

    async def handle(self, request: Request, context: Context) -> dict[str, Any]:
        sending = Sending(context.sent)
        request = _keyed(request, self._spec.idempotency_header, context)
        calling = calling_of(context, request)
        request = calling.traced(request)
        try:
            with calling:
                answer = await self.client.send(request, keep=self._spec.excerpt_bytes, sending=sending)
                calling.answered(answer.status)
        except NotSent as error:
            raise Transient(f"not_sent:{error.why}") from None
        except CutOff as error:
            raise Unknown(f"cut_off:{error.why}") from None
        except LedAway:
            raise Permanent("http_redirect") from None
        except CancelledError:
            if sending.written:
                raise  # it may have happened: a timeout or a cut says so
            raise (Interrupted() if context.draining.is_set() else Transient("not_sent:timeout")) from None
        return self._judged(answer, context)

    def _judged(self, answer: Answer, context: Context) -> dict[str, Any]:
        context.note_pace(answer.headers)
        outcome = classify(answer.status, answer.headers, self._spec.rules, context.now())
        if error := error_for(outcome):
            raise error
        assert isinstance(outcome, Done)
        if not answer.whole:
            # It said done and broke off: whoever relies on the answer's end cannot rely on its beginning.
            raise Unknown("cut_off:body")
        result: dict[str, Any] = {"status": answer.status}
        if self._spec.excerpt_bytes:
            result["excerpt"] = _excerpt(answer.start, self._spec.request.secrets)
        return result


def _keyed(request: Request, name: str, context: Context) -> Request:
    """The request with the key in its header, where there is to be one and the templates set none."""
    if not name or any(name.lower() == header.lower() for header in request.headers):
        return request
    [value] = context.idempotency_headers.values()
    return Request(request.method, request.url, {**request.headers, name: value}, request.body)


def _excerpt(start: bytes, secrets: Mapping[str, str]) -> str:
    """The beginning of a body as text, without any secret that the downstream sent back."""
    text = start.decode(errors="replace").replace("\0", "\ufffd")  # jsonb refuses NUL
    for secret in secrets.values():
        text = text.replace(secret, _HIDDEN)
    return text


def trusting(ca_file: str) -> ssl.SSLContext:
    """Verification by the authorities in this file, instead of the system's.

    Raises:
        OSError: it cannot be read, or holds no certificate (``ssl.SSLError``).
    """
    return ssl.create_default_context(cafile=ca_file)
