"""The application that the process tests run: each job says by its payload what its handler is to do.

A payload is ``{"steps": [STEP, ...]}``. The first call for a key does the first step, the second the second;
the last one repeats. What was called is read from the effect log, so that a restart does not begin anew.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import threading
from functools import cache
from pathlib import Path
from typing import Any, Final

from acklast import App, Context, Permanent, RateLimited, Transient, Unknown
from acklast_topology import Job
from harness.effects import CALL, EFFECT, EffectLog
from harness.waiting import eventually, until

LANE: Final = "work"
TYPE: Final = "work.v1"
DIRECTORY: Final = "ACKLAST_TEST_DIRECTORY"
"""The variable that names the directory of the effect log and the gates."""

_PROCESS_BYTES: Final = 2**32

app = App()


@cache
def log_in(directory: Path) -> EffectLog:
    """The effect log of daemons whose ``DIRECTORY`` is this."""
    return EffectLog(directory / "effects.jsonl")


def exhaust(*, checked: bool) -> None:
    """Ask for more memory than the process may have; where that is not ``checked``, use it all the same.

    The second is what a C library does that does not look at what malloc says.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_PROCESS_BYTES, hard))
    try:
        if checked:
            bytearray(2 * _PROCESS_BYTES)
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        libc.memset(libc.malloc(ctypes.c_size_t(2 * _PROCESS_BYTES)), 1, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


async def insert(ctx: Context, step: dict[str, Any], *, die: bool) -> None:
    """Have the effect in the ledger's own database, and perhaps promise a follow-up job with it."""
    async with ctx.transaction({"inserted": ctx.key}) as connection:
        await connection.execute("INSERT INTO public.effects (key) VALUES ($1)", ctx.key)
        if follow_up := step.get("enqueue"):
            promise(ctx, follow_up, step.get("then", ""))
        if die:
            os.kill(os.getpid(), signal.SIGKILL)


def promise(ctx: Context, key: str, error: str) -> None:
    """Promise a follow-up job, and fail where there is an error."""
    ctx.enqueue(Job.json(LANE, key, {"steps": [{"do": "done"}]}, type=TYPE))
    if error:
        raise Transient(error)


def unanswered(log: EffectLog, ctx: Context, *, effect: bool) -> None:
    """End without an answer, with the effect or without."""
    if effect:
        log.note(EFFECT, ctx.key, ctx.attempt, ctx.ambiguous)
    raise Unknown("no_answer")


async def passed(directory: Path, step: dict[str, Any]) -> None:
    """Wait for the step's gate, if it has one."""
    if gate := step.get("gate"):
        await eventually((directory / gate).exists, timeout_s=step.get("patience_s", 100))


def wreck(directory: Path, what: str) -> None:
    """Block the event loop until the gate ``go`` is open, or its threads for ever, or end one of the daemon's
    own tasks."""
    if what == "loop":
        until((directory / "go").exists, timeout_s=100)
        return
    if what == "threads":
        for _ in range(40):
            asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
        return
    [ended] = [task for task in asyncio.all_tasks() if task.get_name() == what]
    ended.cancel()


@app.job(TYPE, lane=LANE)
async def work(payload: dict[str, Any], ctx: Context) -> Any:
    """Do the step that is this call's turn."""
    directory = Path(os.environ[DIRECTORY])
    log = log_in(directory)
    steps: list[dict[str, Any]] = payload["steps"]
    step = steps[min(len(log.calls(ctx.key)), len(steps) - 1)]
    log.note(CALL, ctx.key, ctx.attempt, ctx.ambiguous)
    match step:
        case {"do": "enqueue", "key": key, "then": error}:
            promise(ctx, key, error)
        case {"do": "transient"}:
            await passed(directory, step)
            raise Transient("not_now")
        case {"do": "rate_limited", "retry_after": retry_after}:
            raise RateLimited(retry_after)
        case {"do": "permanent"}:
            raise Permanent("refused")
        case {"do": "unknown" | "lost" as how}:
            unanswered(log, ctx, effect=how == "unknown")
        case {"do": "insert" | "insert_and_die" as how}:
            await insert(ctx, step, die=how == "insert_and_die")
            return None
        case {"do": "cancel_itself"}:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        case {"do": "kill", "after": others}:
            await eventually(
                lambda: set(others) <= {call.key for call in log.calls() if call.pid == os.getpid()}
            )
            os.kill(os.getpid(), signal.SIGKILL)
        case {"do": "exhaust", "checked": checked}:
            exhaust(checked=checked)
        case {"do": "wreck", "what": what}:
            wreck(directory, what)
        case {"do": "wait"}:
            await passed(directory, step)
    log.note(EFFECT, ctx.key, ctx.attempt, ctx.ambiguous)
    return {"key": ctx.key}
