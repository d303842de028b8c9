"""An application of two lanes that each do steps of their own for one and the same job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from acklast import App, Context, Permanent, Transient
from harness.effects import CALL, EFFECT
from harness.scripted import DIRECTORY, LANE, log_in
from harness.waiting import eventually

SIDE: Final = "side"
FAN_OUT: Final = "tenancy-ended"
TABLES: Final = f'[lanes.{SIDE}]\nbackoff_base_s = 0.05\n[fan_out.{FAN_OUT}]\nlanes = ["{LANE}", "{SIDE}"]'

app = App()


@app.job("at-work.v1", lane=LANE)
@app.job("aside.v1", lane=SIDE)
async def step(payload: dict[str, Any], ctx: Context) -> None:
    """The lane's step for this call, noted as ``lane/key``."""
    directory = Path(os.environ[DIRECTORY])
    log, name, steps = log_in(directory), f"{ctx.lane}/{ctx.key}", payload[ctx.lane]
    do = steps[min(len(log.calls(name)), len(steps) - 1)]
    log.note(CALL, name, ctx.attempt, ctx.ambiguous)
    match do:
        case "transient":
            raise Transient("not_now")
        case "permanent":
            raise Permanent("refused")
        case "wait":
            await eventually((directory / "go").exists, timeout_s=100)
    log.note(EFFECT, name, ctx.attempt, ctx.ambiguous)
