"""The page about getting jobs in: its snippet does what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import asyncpg

from acklast_topology.declare import apply
from acklast_topology.names import Names
from acklast_topology.plan import plan_for
from harness import Broker

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "enqueue.md"


async def test_the_snippet_enqueues_a_run(broker: Broker, ledger_dsn: str) -> None:
    async with await broker.connect() as connection:
        await apply(connection, plan_for(Names(), ["cleanup"]))
    [snippet] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    env = os.environ | {"ACKLAST_LEDGER_DSN": ledger_dsn, "ACKLAST_BROKER_URL": broker.url}
    # Everything that it waits for is in other processes.
    done = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-c", snippet], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    ledger = await asyncpg.connect(ledger_dsn)
    assert await ledger.fetchval("select manifest from acklast.runs where run = 'spring'") == 1000
    await ledger.close()
    async with await broker.connect() as connection, connection.channel() as channel:
        queue = await channel.declare_queue(Names().work("cleanup"), passive=True)
        assert queue.declaration_result.message_count == 1000
