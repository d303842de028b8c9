"""The event loop's own threads: as the standard ones, but that nobody waits for them at the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from acklast.handlers.executor import Executor, end_with_the_process

LEFT = """
import asyncio, threading
from acklast.handlers.executor import end_with_the_process

async def main():
    end_with_the_process()
    left = [asyncio.create_task(asyncio.to_thread(threading.Event().wait)) for _ in range(40)]
    await asyncio.sleep(0)
    print(len(left), "left")

asyncio.run(main())
"""


def test_what_never_returns_keeps_no_process_from_its_end() -> None:
    ended = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, timeout=60, check=True)
    assert ended.stdout == b"40 left\n"


async def test_results_and_errors_are_the_callers() -> None:
    end_with_the_process()
    assert await asyncio.to_thread(pow, 2, exp=5) == 32
    with pytest.raises(ValueError, match="invalid literal"):
        await asyncio.to_thread(int, "x")
    assert await asyncio.to_thread(threading.current_thread) is not threading.main_thread()


async def test_what_is_given_up_before_its_turn_is_not_done() -> None:
    executor, go, done = Executor(1), threading.Event(), list[int]()
    first, second = executor.submit(go.wait), executor.submit(done.append, 2)
    assert second.cancel()
    third = executor.submit(done.append, 3)
    go.set()
    await asyncio.wrap_future(third)
    assert first.result()
    assert done == [3]
    executor.shutdown()
