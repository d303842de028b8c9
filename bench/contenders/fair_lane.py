"""acklast with runs of different sizes: the handler notes whose job it was."""

from __future__ import annotations

import os

from acklast import App, Context
from bench.contenders.lane import LANE, TYPE, Payload

STARTS = "BENCH_STARTS"
"""The variable that names the file of starts: one line for each, its run."""

app = App()


@app.job(TYPE, lane=LANE)
async def handle(payload: Payload, context: Context) -> None:
    line = f"{context.run}\n".encode()
    file = os.open(os.environ[STARTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)
