"""What a handler knows of its job besides the payload."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import structlog
from structlog.typing import FilteringBoundLogger

from acklast.errors import AcklastError
from acklast.handlers.result import kept
from acklast.http.classify import NO_RULES, StatusRules, classify, error_for, status_of
from acklast.http.pace import Headers, PaceHint, pace_hint
from acklast.telemetry.trace import Trace
from acklast_topology.job import Job

Begin: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]
"""Opens a transaction that also records the job as done, with this result, at its end."""


class Response(Protocol):
    """A client library's response: its status is ``status_code`` or ``status``."""

    @property
    def headers(self) -> Any: ...


_NO_STATUS: Final[Mapping[int | str, str]] = MappingProxyType({})
_NO_HEADERS: Final[Mapping[str, Any]] = MappingProxyType({})


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Draining(Protocol):
    """Whether the daemon is about to stop: the part of ``asyncio.Event`` that is a handler's business."""

    def is_set(self) -> bool:
        """True from the drain's beginning. Safe from a thread."""

    async def wait(self) -> object:
        """Return when the drain begins. For async handlers only."""


class Context:
    """One attempt at one job, as its handler sees it.

    Only ``key`` and ``lane`` are needed, so that a test can make one.
    """

    __slots__ = (
        "_armed_at",
        "_began",
        "_begin",
        "_headers",
        "_inject",
        "_log",
        "_threaded",
        "ambiguous",
        "attempt",
        "completed",
        "deadline",
        "draining",
        "fence",
        "follow_ups",
        "key",
        "lane",
        "now",
        "pace",
        "result",
        "run",
        "sent",
        "timeout_s",
        "trace",
        "type",
    )

    def __init__(
        self,
        key: str,
        lane: str,
        *,
        type: str | None = None,  # noqa: A002 - the contract's word
        run: str | None = None,
        attempt: int = 1,
        fence: int | None = None,
        deadline: datetime | None = None,
        ambiguous: bool = False,
        headers: Mapping[Any, Any] = _NO_HEADERS,
        draining: Draining | None = None,
        transaction: Begin | None = None,
        sent: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = _utc_now,
        trace: Trace | None = None,
        inject: Callable[[Trace, str], dict[str, str]] = Trace.carried,
        follow_ups: list[Job] | None = None,
    ) -> None:
        self.key: Final = key
        self.lane: Final = lane
        self.type: Final = type
        self.run: Final = run
        self.attempt: Final = attempt
        """Attempts that count, this one included: 1 is the first."""
        self.fence: Final = fence
        """The number of the claim, which only grows: a store that is told may refuse whoever comes late."""
        self.deadline: Final = deadline
        """Aware. The job is not started past it; it does not stop a running attempt."""
        self.ambiguous: Final = ambiguous
        """An earlier attempt may have had its effect already."""
        self.draining: Final[Draining] = draining or asyncio.Event()
        self.sent: Final = sent
        """Call it when the request goes out, to say so to the lane's budget; an HTTP lane does."""
        self.now: Final = now
        """Tells the time, aware, by the ledger's clock: the one that deadlines and retries go by."""
        self.trace: Final = trace
        """Its place in a trace; None where it belongs to none."""
        self._inject = inject
        self.completed = False
        """``transaction`` has committed: the job is done, whatever happens next."""
        self.result: Any = None
        self.follow_ups: Final[list[Job]] = [] if follow_ups is None else follow_ups
        """What ``enqueue`` was given."""
        self.pace: PaceHint | None = None
        """What the downstream last said of its quota: it may slow the lane's budget."""
        self._headers = headers
        self._begin = transaction
        self._began = False
        self._threaded = False
        self.timeout_s = float("inf")
        """What this attempt is given, in seconds."""
        self._armed_at = 0.0
        self._log: FilteringBoundLogger | None = None

    @property
    def headers(self) -> Mapping[str, Any]:
        """The message's headers as they came, read-only."""
        return MappingProxyType(self._headers)

    @property
    def traceparent(self) -> str | None:
        """The W3C ``traceparent`` of this attempt, for a call that no instrumented client makes; None where
        the job belongs to no trace."""
        return None if self.trace is None else self.trace.traceparent

    def trace_headers(self, span_id: str = "") -> dict[str, str]:
        """The headers by which the job's trace goes on: ``traceparent``, ``tracestate`` and ``baggage``, or
        what ``OTEL_PROPAGATORS`` asks for. Empty where it belongs to none."""
        return {} if self.trace is None else self._inject(self.trace, span_id)

    @property
    def log(self) -> FilteringBoundLogger:
        """A logger that says which job it speaks of. Made at its first use."""
        if self._log is None:
            self._log = structlog.get_logger().bind(
                lane=self.lane, key=self.key, run=self.run, attempt=self.attempt
            )
            known = {"fence": self.fence, "trace_id": self.trace.trace_id if self.trace else None}
            self._log = self._log.bind(**{name: value for name, value in known.items() if value is not None})
        return self._log

    @property
    def idempotency_headers(self) -> dict[str, str]:
        """The header by which a downstream knows a repeat: the same on every attempt."""
        return {"Idempotency-Key": structured(self.key)}

    def raise_for_status(self, response: Response, *, status: Mapping[int | str, str] = _NO_STATUS) -> None:
        """Read a response as an HTTP lane does: return where the job is done, else raise the outcome.

        ``response`` is httpx's, aiohttp's or any other with ``status_code`` or ``status`` and ``headers``.
        ``status`` says what a status, or a class of them, means here: ``{409: "done", "5xx": "unknown"}``.
        RateLimit headers are noted on the way.

        Raises:
            RateLimited, Transient, Permanent, Unknown: what the response came to.
            ValueError: ``status`` names no status, or no meaning.
        """
        self.note_pace(response.headers)
        rules = StatusRules.of(status) if status else NO_RULES
        outcome = classify(status_of(response), response.headers, rules, self.now())
        if error := error_for(outcome):
            raise error

    def note_pace(self, headers: Headers) -> None:
        """Note what a response's headers say of the downstream's quota, if anything."""
        self.pace = pace_hint(headers, self.now()) or self.pace

    def enqueue(self, job: Job) -> None:
        """Promise a follow-up job: it is published if this attempt completes the job, and never otherwise.

        It goes to the outbox in the commit that completes the job, and the relay publishes it. A repeated
        attempt promises it again under its own key, so make that of this job's key. It goes on in this job's
        trace, unless its headers name another one.

        Raises:
            AcklastError: its headers are more than JSON can say.
        """
        if (headers := self.trace_headers()) and not headers.keys() & job.headers.keys():
            job = replace(job, headers={**headers, **job.headers})
        try:
            json.dumps(dict(job.headers))
        except TypeError as error:
            raise AcklastError(
                f"the headers of job {job.key!r} cannot wait in the outbox: {error}",
                "Use texts, numbers, lists and objects",
            ) from None
        self.follow_ups.append(job)

    def remaining_s(self) -> float:
        """Seconds until this attempt is cancelled, 0 when overdue; infinite where no attempt runs."""
        return max(0.0, self._armed_at + self.timeout_s - time.monotonic())

    def arm(self, timeout_s: float, *, threaded: bool) -> None:
        """Start the attempt's clock. Called by the daemon, once, before the handler."""
        self._armed_at = time.monotonic()
        self.timeout_s = timeout_s
        self._threaded = threaded

    def transaction(self, result: Any = None) -> AbstractAsyncContextManager[Any]:
        """A connection whose commit also completes the job with ``result``: both happen or neither.

        Raises:
            AcklastError: in a plain ``def`` handler, at a second use, or where no ledger stands behind it.
            ClaimLost: at the end, everything rolled back: another worker owns the job by now.
        """
        if self._threaded:
            raise AcklastError(
                "ctx.transaction() was called in a plain def handler", "Write the handler as async def"
            )
        if self._began:
            raise AcklastError(
                "ctx.transaction() was used twice in one attempt",
                "Do all of the job's work in one transaction; after an error let the lane try again",
            )
        if self._begin is None:
            raise AcklastError(
                "ctx.transaction() has no ledger behind it", "Pass transaction=... to the Context in a test"
            )
        self._began = True
        return self._transaction(self._begin, kept(result).value)

    @asynccontextmanager
    async def _transaction(self, begin: Begin, result: Any) -> AsyncIterator[Any]:
        async with begin(result) as connection:
            yield connection
        self.result = result
        self.completed = True


def structured(key: str) -> str:
    """A key as a structured-field string (RFC 9651), as the Idempotency-Key draft asks.

    In double quotes, with quote and backslash escaped. Such a string is printable ASCII only, so other
    characters, and the percent sign itself, go as percent-encoded UTF-8: no two keys come out the same.
    """
    return '"' + "".join(map(_escaped, key)) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char != "%" and " " <= char <= "~":
        return char
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
