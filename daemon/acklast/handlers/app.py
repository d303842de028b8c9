"""The handlers of a program, by lane and type."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import structlog

from acklast.handlers.context import Context
from acklast.handlers.failure import exception_name
from acklast.handlers.payload import Decode, JsonPayload, decoder_for
from acklast.handlers.signature import Function, function_of, is_async, name_of, payload_annotation
from acklast.handlers.threads import Threads
from acklast_topology.names import NAME_RULE, valid_name

F = TypeVar("F", bound=Callable[..., Any])
Stop = TypeVar("Stop", bound=Callable[[], Awaitable[None]])

_STOP_S: Final = 5.0
"""How long each of the functions that run at the end may take."""


@dataclass(frozen=True, slots=True)
class JobType:
    """One kind of job and what handles it."""

    name: str
    lane: str
    handler: Function
    decode: Decode
    """From an envelope to the payload; raises ``InvalidPayload``."""
    threads: Threads
    timeout_s: float | None = None
    """How long one attempt may run; None: the lane's own."""
    reconcile: Function | None = None
    close: Callable[[], Awaitable[None]] | None = None
    """Lets go of what the handler holds, after the last job."""

    def call(self, payload: Any, context: Context) -> Any:
        """Call the handler as its signature asks: a coroutine where it is ``async def``."""
        return self.handler(payload, context)


class App:
    """A program's job types.

    ``app = App()`` at module level, then ``@app.job("rent.reminder.v1", lane="reminders")`` above a handler.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, JobType] = {}
        self._table: dict[tuple[str, str | None], JobType] = {}
        self._catching: dict[str, JobType] = {}
        self._threads = Threads()
        self._stops: list[Callable[[], Awaitable[None]]] = []

    def job(
        self,
        type: str,  # noqa: A002 - the contract's word
        *,
        lane: str,
        timeout_s: float | None = None,
        reconcile: Callable[..., Any] | None = None,
    ) -> Callable[[F], F]:
        """Register the decorated function, which stays what it is, as the handler of a job type.

        ``timeout_s`` bounds one attempt, in seconds; without it the lane's bound holds. ``reconcile``, with
        the handler's own signature, tells whether the effect has happened: True or a result, False, or None
        where it cannot tell.

        Raises:
            ValueError: the type is taken, or a name or the timeout is not valid.
            TypeError: the function is none that can handle a job.
        """
        _check_type(type)
        _check_lane(lane)
        _check_timeout(type, timeout_s)

        def register(function: F) -> F:
            self._add(
                JobType(
                    name=type,
                    lane=lane,
                    handler=function_of(function),
                    decode=decoder_for(payload_annotation(function), name_of(function)),
                    threads=self._threads,
                    timeout_s=timeout_s,
                    reconcile=function_of(reconcile) if reconcile is not None else None,
                )
            )
            return function

        return register

    def reconcile(self, type: str) -> Callable[[F], F]:  # noqa: A002 - the contract's word
        """Register the decorated function as the ``reconcile`` of a job type that has its handler already.

        Raises:
            ValueError: the type has no handler yet, or a reconcile already.
            TypeError: the function has not a handler's signature.
        """

        def register(function: F) -> F:
            job = self._jobs.get(type)
            if job is None:
                raise ValueError(
                    f"job type {type!r} has no handler yet. Put its @app.job above its @app.reconcile"
                )
            if job.reconcile is not None:
                raise ValueError(f"job type {type!r} has a reconcile already. Keep one of the two")
            self._jobs[type] = replace(job, reconcile=function_of(function))
            self._index(job.lane)
            return function

        return register

    def find(self, lane: str, type: str | None) -> JobType | None:  # noqa: A002 - the contract's word
        """The job type for a message of a lane; one without a type is for the lane's only handler."""
        return self._table.get((lane, type)) or self._catching.get(lane)

    def why_none(self, lane: str, type: str | None) -> str:  # noqa: A002 - the contract's word
        """Why ``find`` has nothing for a message: what it asked for, and what there is."""
        known = ", ".join(sorted(repr(job.name) for job in self._jobs.values() if job.lane == lane))
        asked = "names no type" if type is None else f"is of type {type!r}"
        return f"the message {asked}; lane {lane} has handlers for {known or 'nothing'}"

    def with_lanes(self, jobs: Iterable[JobType]) -> App:
        """The same application with these besides, each for every type of its lane; this one stays as it is.

        For lanes whose handler comes from the configuration.
        """
        made = copy(self)
        made._catching = {job.lane: job for job in jobs}
        return made

    def wrapped(self, wrap: Callable[[JobType], JobType]) -> App:
        """The same application with each job type as ``wrap`` makes it; this one stays as it is.

        For tests, which may stop it without taking from this one what it would do at its own end.
        """
        made = copy(self)
        made._jobs = {name: wrap(job) for name, job in self._jobs.items()}
        made._table = {place: made._jobs[job.name] for place, job in self._table.items()}
        made._catching = {lane: wrap(job) for lane, job in self._catching.items()}
        made._threads, made._stops = Threads(), list(self._stops)
        return made

    def lanes(self) -> set[str]:
        """The lanes that have a handler registered; those of ``with_lanes`` are not."""
        return {job.lane for job in self._jobs.values()}

    def jobs(self) -> tuple[JobType, ...]:
        """Every registered job type, in order; those of ``with_lanes`` are not."""
        return tuple(self._jobs.values())

    def prepare(self, slots: Mapping[str, int]) -> None:
        """Make ready to run. ``slots`` says how many jobs of each lane may run at once.

        Raises:
            ConfigError: a payload type names something that was never defined.
        """
        for job in self._jobs.values():
            if isinstance(job.decode, JsonPayload):
                job.decode.finish(name_of(job.handler.call))
        self.resize(slots)

    def resize(self, slots: Mapping[str, int]) -> None:
        """From now on so many jobs of each lane may run at once."""
        threaded = {job.lane for job in self._jobs.values() if _needs_threads(job)}
        self._threads.limit = max(1, sum(slots.get(lane, 0) for lane in threaded))

    def on_stop(self, function: Stop) -> Stop:
        """Register an ``async def`` without parameters that runs when the daemon stops, after the last job.

        For what handlers share: an HTTP session, a pool. The last one registered runs first.

        Raises:
            TypeError: it is no ``async def``.
        """
        if not is_async(function):
            raise TypeError(f"{name_of(function)} is no async def. Write it as one, without parameters")
        self._stops.append(function)
        return function

    async def stop(self) -> None:
        """Run what ``on_stop`` registered and let the threads go. Never fails, and waits for no thread."""
        self._stops[:0] = [job.close for job in self._catching.values() if job.close is not None]
        while self._stops:
            function = self._stops.pop()
            try:
                async with asyncio.timeout(_STOP_S):
                    await function()
            except Exception as error:
                structlog.get_logger().warning(
                    "on_stop_failed", function=name_of(function), error=exception_name(error)
                )
        self._threads.close()

    def _add(self, job: JobType) -> None:
        if job.name in self._jobs:
            raise ValueError(
                f"job type {job.name!r} has a handler already. Give each handler a type of its own"
            )
        self._jobs[job.name] = job
        self._index(job.lane)

    def _index(self, lane: str) -> None:
        jobs = [job for job in self._jobs.values() if job.lane == lane]
        self._table.update({(lane, job.name): job for job in jobs})
        self._table.pop((lane, None), None)
        if len(jobs) == 1:
            self._table[lane, None] = jobs[0]


def _needs_threads(job: JobType) -> bool:
    return job.handler.threaded or (job.reconcile is not None and job.reconcile.threaded)


def _check_type(name: str) -> None:
    if not name or not name.isprintable() or name != name.strip() or len(name.encode()) > 255:
        raise ValueError(f"job type {name!r} is not valid. Use 1 to 255 bytes of printable text")


def _check_lane(lane: str) -> None:
    if not valid_name(lane):
        raise ValueError(f"lane {lane!r} is not valid. Use {NAME_RULE}")


def _check_timeout(name: str, timeout_s: float | None) -> None:
    if timeout_s is not None and not (0 < timeout_s < math.inf):
        raise ValueError(f"job type {name!r}: timeout_s={timeout_s!r} is not valid. Use seconds above 0")
