"""The application that the process tests run: each job says by its payload what its handler is to do.

A payload is ``{"steps": [STEP, ...]}``. The first call for a key does the first step, the second the second;
the last one repeats. What was called is read from the effect log, so that a restart does not begin anew.
"""

from __future__ import annotations

import asyncio
import os
import signal
from functools import cache
from pathlib import Path
from typing import Any, Final

from acklast import App, Context, Permanent, RateLimited, Transient, Unknown
from harness.effects import CALL, EFFECT, EffectLog
from harness.waiting import eventually

LANE: Final = "work"
TYPE: Final = "work.v1"
DIRECTORY: Final = "ACKLAST_TEST_DIRECTORY"
"""The variable that names the directory of the effect log and the gates."""

app = App()


@cache
def log_in(directory: Path) -> EffectLog:
    """The effect log of daemons whose ``DIRECTORY`` is this."""
    return EffectLog(directory / "effects.jsonl")


@app.job(TYPE, lane=LANE)
async def work(payload: dict[str, Any], ctx: Context) -> Any:
    """Do the step that is this call's turn."""
    directory = Path(os.environ[DIRECTORY])
    log = log_in(directory)
    steps: list[dict[str, Any]] = payload["steps"]
    step = steps[min(len(log.calls(ctx.key)), len(steps) - 1)]
    log.note(CALL, ctx.key, ctx.attempt, ctx.ambiguous)
    match step:
        case {"do": "transient"}:
            raise Transient("not_now")
        case {"do": "rate_limited", "retry_after": retry_after}:
            raise RateLimited(retry_after)
        case {"do": "permanent"}:
            raise Permanent("refused")
        case {"do": "unknown"}:
            log.note(EFFECT, ctx.key, ctx.attempt, ctx.ambiguous)
            raise Unknown("no_answer")
        case {"do": "insert" | "insert_and_die" as how}:
            async with ctx.transaction({"inserted": ctx.key}) as connection:
                await connection.execute("INSERT INTO public.effects (key) VALUES ($1)", ctx.key)
                if how == "insert_and_die":
                    os.kill(os.getpid(), signal.SIGKILL)
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
        case {"do": "wait", "gate": gate}:
            await eventually((directory / gate).exists, timeout_s=step.get("patience_s", 100))
    log.note(EFFECT, ctx.key, ctx.attempt, ctx.ambiguous)
    return {"key": ctx.key}
