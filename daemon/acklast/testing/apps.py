"""The application of a test: the user's own handlers, which say when they start and how they end."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from acklast.handlers.app import App, JobType
from acklast.handlers.context import Context
from acklast.handlers.signature import Function
from acklast.handlers.threads import Threads
from acklast.testing.process import HERE, Process
from acklast.testing.script import Hang, Lost

if TYPE_CHECKING:
    from acklast.testing.play import Play


class OneByOne(Threads):
    """Runs a plain ``def`` to its end in its thread before anything else happens: the clock stands still."""

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        future = super().submit(call)
        wait([future])
        return future


def watched(app: App) -> App:
    """The same application under the eyes of the play that its code runs in."""
    threads = OneByOne()

    def wrap(job: JobType) -> JobType:
        reconcile = job.reconcile and _reconcile(job.reconcile)
        return replace(job, handler=_handler(job.handler), reconcile=reconcile, threads=threads)

    return app.wrapped(wrap)


def _play() -> tuple[Play, Process]:
    process = HERE.get().process
    return cast("Play", process.stage), process


def _handler(function: Function) -> Function:
    async def handle(payload: Any, context: Context) -> Any:
        with _noted(context) as fault:
            if isinstance(fault, Hang):
                await asyncio.Event().wait()
            _raise_instead(fault)
            value = await function(payload, context)
            _raise_after(fault)
            return value

    def handle_in_thread(payload: Any, context: Context) -> Any:
        with _noted(context) as fault:
            if isinstance(fault, Hang):
                raise AssertionError("a plain def cannot hang in virtual time: test it as an async def")
            _raise_instead(fault)
            value = function(payload, context)
            _raise_after(fault)
            return value

    return _like(function, handle_in_thread if function.threaded else handle)


def _reconcile(function: Function) -> Function:
    async def ask(payload: Any, context: Context) -> Any:
        return _answered(context, await function(payload, context))

    def ask_in_thread(payload: Any, context: Context) -> Any:
        return _answered(context, function(payload, context))

    return _like(function, ask_in_thread if function.threaded else ask)


def _like(function: Function, call: Callable[[Any, Context], Any]) -> Function:
    return Function(call, takes_context=True, threaded=function.threaded, source=function.source)


@contextmanager
def _noted(context: Context) -> Iterator[object]:
    """Say that an attempt starts, and how it ends; gives what it is to do instead, if anything."""
    play, process = _play()
    place = (context.lane, context.key)
    doubt = ", in doubt" if context.ambiguous else ""
    play.story.add(
        "started",
        f"attempt {context.attempt} starts{doubt}",
        process.name,
        place,
        attempt=context.attempt,
        ambiguous=context.ambiguous,
    )
    try:
        yield play.script.acting(*place)
    except BaseException as error:
        if not process.dead:
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            play.story.add("raised", f"the handler raises {said}", process.name, place, error=error)
        raise
    play.story.add("returned", "the handler returns", process.name, place)


def _raise_instead(fault: object) -> None:
    if isinstance(fault, BaseException):
        _raise(fault)


def _raise_after(fault: object) -> None:
    if isinstance(fault, Lost):
        _raise(fault.error)


def _raise(error: BaseException) -> NoReturn:
    # A copy: raised again and again, one exception would collect the tracebacks of all its times.
    raise copy.copy(error) from None


def _answered(context: Context, answer: Any) -> Any:
    play, process = _play()
    text = "it cannot tell" if answer is None else "it did not happen" if answer is False else "it happened"
    play.story.add(
        "reconciled", f"reconcile: {text}", process.name, (context.lane, context.key), answer=answer
    )
    return answer
