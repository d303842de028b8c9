"""One attempt at one job: the handler runs, and what it came to is a value. Exceptions stop here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from acklast.decide import classify, reason_code
from acklast.errors import JobError
from acklast.handlers.app import JobType
from acklast.handlers.context import Context
from acklast.handlers.failure import described, exception_name, raised, sole
from acklast.handlers.payload import InvalidPayload
from acklast.handlers.result import kept
from acklast.handlers.run import Ended, Stop, run
from acklast.outcome import Done, Interrupted, Outcome, Permanent, Transient, Unknown
from acklast_topology.contract import Envelope, Reason

_DONE: Final = Done()


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a ``reconcile`` found: the effect happened (with a result), it did not, or None: it cannot tell.

    ``reason`` is a short code that says why it cannot tell; empty where the function itself said so.
    """

    happened: bool | None
    result: Any = None
    reason: str = ""
    detail: str = ""


async def attempt(
    job: JobType,
    envelope: Envelope,
    context: Context,
    *,
    timeout_s: float,
    retry_after_cap_s: float,
    cut: Callable[[], bool],
) -> Outcome:
    """Run the handler once, for at most ``timeout_s`` seconds and until it has really stopped.

    The drain cuts an attempt by cancelling its task while ``cut()`` is true; such a cancellation ends here.
    Any other goes on as ``CancelledError``, and so does ``KeyboardInterrupt``.
    """
    if cut():
        return Interrupted()
    try:
        payload = job.decode(envelope)
    except InvalidPayload as error:
        return Permanent(Reason.INVALID_PAYLOAD, error.detail)
    ended = await run(job.handler, payload, context, threads=job.threads, timeout_s=timeout_s, cut=cut)
    if context.completed:
        return Done(context.result)
    if not ended.started:
        return Interrupted() if ended.stop is Stop.CUT else Transient("no_thread", "no thread came free")
    if ended.error is None:
        return _DONE if ended.value is None else Done(_kept(ended.value, context))
    return _failed(ended, job, context, timeout_s, retry_after_cap_s)


async def reconcile_attempt(
    job: JobType,
    envelope: Envelope,
    context: Context,
    *,
    timeout_s: float,
    cut: Callable[[], bool] = lambda: False,
) -> Reconciled:
    """Ask the job type's ``reconcile`` whether the effect of an earlier attempt happened.

    An error, a timeout and a cut all mean that it cannot tell.
    """
    if job.reconcile is None:
        return Reconciled(None, reason="no_reconcile")
    if cut():
        return Reconciled(None, reason="drain_cut")
    try:
        payload = job.decode(envelope)
    except InvalidPayload as error:
        return Reconciled(None, reason=Reason.INVALID_PAYLOAD, detail=error.detail)
    ended = await run(job.reconcile, payload, context, threads=job.threads, timeout_s=timeout_s, cut=cut)
    if ended.error is None and ended.started:
        return _answer(ended.value, context)
    return _no_answer(ended, job.reconcile.source)


# --- what it came to ---------------------------------------------------------------------------------


def _failed(
    ended: Ended, job: JobType, context: Context, timeout_s: float, retry_after_cap_s: float
) -> Outcome:
    error = sole(_error_of(ended))
    found = _outcome_of(error, ended, job, context, timeout_s, retry_after_cap_s)
    if isinstance(found, Transient | Permanent | Unknown):
        return replace(found, raised=raised(error, job.handler.source, context.key))
    return found


def _outcome_of(
    error: BaseException,
    ended: Ended,
    job: JobType,
    context: Context,
    timeout_s: float,
    retry_after_cap_s: float,
) -> Outcome:
    detail = described(error, job.handler.source)
    if isinstance(error, JobError):  # the handler knows best, even while it is being stopped
        return _classified(error, context, retry_after_cap_s)
    if ended.stop is Stop.TIMEOUT:
        return Unknown("timeout", f"stopped after {timeout_s:g} s: {detail}")
    if ended.stop is Stop.CUT:
        return Unknown("drain_cut", detail, cut=True)
    if isinstance(error, SystemExit):
        context.log.error("handler_exit", detail=detail)
    found = _classified(error, context, retry_after_cap_s)
    return replace(found, detail=detail) if isinstance(found, Unknown) else found


def _classified(error: BaseException, context: Context, retry_after_cap_s: float) -> Outcome:
    try:
        found = classify(error, now=context.now(), retry_after_cap_s=retry_after_cap_s)
    except Exception:  # a JobError made of the wrong types, such as a reason that is no text
        return Unknown(f"exception:{exception_name(error)}")
    if isinstance(found, Interrupted) and not context.draining.is_set():
        # Given back without a drain it would come again at once, spend no attempt, and go on for ever.
        return Transient("interrupted", "Interrupted was raised while no drain was on")
    return found


def _answer(value: Any, context: Context) -> Reconciled:
    if value is None or value is False:
        return Reconciled(value)
    return Reconciled(True, None if value is True else _kept(value, context))


def _no_answer(ended: Ended, source: str) -> Reconciled:
    if ended.stop is Stop.CUT:
        return Reconciled(None, reason="drain_cut")
    if ended.stop is Stop.TIMEOUT:
        return Reconciled(None, reason="timeout")
    error = sole(_error_of(ended))
    code = error.reason if isinstance(error, JobError) else f"exception:{exception_name(error)}"
    return Reconciled(None, reason=reason_code(code), detail=described(error, source))


def _error_of(ended: Ended) -> BaseException:
    assert ended.error is not None  # asked only of what ended by one
    return ended.error


def _kept(value: Any, context: Context) -> Any:
    result = kept(value)
    if result.omitted:
        context.log.warning("result_omitted", why=result.omitted)
    return result.value
