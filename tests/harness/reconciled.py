"""The scripted application with a reconcile, which answers as the payload's ``found`` says, one a call."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acklast import App, Context
from acklast_topology import Job
from harness import scripted
from harness.effects import ASKED
from harness.waiting import eventually

PLAIN_TYPE = "plain.v1"
RUN = "run-1"

app = App()
app.job(scripted.TYPE, lane=scripted.LANE)(scripted.work)
app.job(PLAIN_TYPE, lane=scripted.LANE)(scripted.work)


def lost(key: str, *found: Mapping[str, Any], effect: bool = False, **more: Any) -> Job:
    """A job whose first attempt ends without an answer; ``found``: what its reconcile says, one a call."""
    steps = [{"do": "unknown" if effect else "lost"}, {"do": "done"}]
    payload = {"steps": steps, "found": list(found)}
    return Job.json(scripted.LANE, key, payload, **{"type": scripted.TYPE, "run": RUN} | more)


@app.reconcile(scripted.TYPE)
async def found(payload: dict[str, Any], ctx: Context) -> Any:
    """Do the step that is this call's turn; the last one repeats."""
    directory = Path(os.environ[scripted.DIRECTORY])
    log = scripted.log_in(directory)
    steps: list[dict[str, Any]] = payload["found"]
    step = steps[min(len(log.asked(ctx.key)), len(steps) - 1)]
    log.note(ASKED, ctx.key, ctx.attempt, ctx.ambiguous)
    if gate := step.get("gate"):
        await eventually((directory / gate).exists, timeout_s=100)
    if step.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if error := step.get("error"):
        raise RuntimeError(error)
    return step["say"]
