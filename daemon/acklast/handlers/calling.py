"""The trace of an HTTP lane's request: it goes on in the request's headers, and the call has its span."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

from acklast.handlers.context import Context
from acklast.http.client import CutOff, LedAway, NotSent
from acklast.http.request import Request
from acklast.telemetry.span import new_span_id
from acklast.telemetry.trace import Call, Trace

_BAD_STATUS: Final = 400


class Calling(Protocol):
    """Open while the request is under way."""

    def traced(self, request: Request) -> Request:
        """The request with the headers of its trace."""

    def answered(self, status: int) -> None:
        """An answer has come."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


def calling_of(context: Context, request: Request) -> Calling:
    """For one request. Where the job belongs to no trace nothing is done."""
    trace = context.trace
    if trace is None or not trace.exported:
        return _PassedOn(context)
    return _Traced(context, trace, request)


class _PassedOn:
    """The trace is handed on; no span is made of the call."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def traced(self, request: Request) -> Request:
        return with_headers(request, self._context.trace_headers())

    def answered(self, status: int) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        pass


class _Traced(_PassedOn):
    """The call is a span of its own, and what the downstream does is under that."""

    __slots__ = ("_began", "_id", "_request", "_status", "_trace")

    def __init__(self, context: Context, trace: Trace, request: Request) -> None:
        super().__init__(context)
        self._trace = trace
        self._request = request
        self._id = new_span_id()
        self._status: int | None = None
        self._began = time.monotonic()

    def traced(self, request: Request) -> Request:
        return with_headers(request, self._context.trace_headers(self._id))

    def answered(self, status: int) -> None:
        self._status = status

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        parts = urlsplit(self._request.url)
        self._trace.calls += (
            Call(
                self._id,
                self._request.method,
                parts.hostname or "",
                parts.port,
                self._began,
                time.monotonic(),
                self._status,
                error_of(self._status, error),
            ),
        )


def error_of(status: int | None, error: BaseException | None) -> str | None:
    """Why a call failed, as a short code: its status, or why there was none."""
    match error:
        case None:
            return str(status) if status is not None and status >= _BAD_STATUS else None
        case NotSent(why=why) | CutOff(why=why):
            return why
        case LedAway():
            return "http_redirect"
        case _:
            return "cancelled"


def with_headers(request: Request, headers: dict[str, str]) -> Request:
    """The request with these as well; what the templates set is left alone."""
    if not headers:
        return request
    own = {name.lower() for name in request.headers}
    more = {name: value for name, value in headers.items() if name.lower() not in own}
    return Request(request.method, request.url, {**request.headers, **more}, request.body)
