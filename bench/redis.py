"""A private Redis, for the one contender that shares its limit by one: no file, no network but loopback."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.children import Child
from bench.queues import BenchError
from dev.need import redis_server
from dev.workspace import free_port, wait_until

URL: Final = "BENCH_REDIS_URL"
_READY_S: Final = 20.0


@contextmanager
def redis() -> Iterator[str]:
    """Run one, unless the environment has one; its address.

    Raises:
        Missing: it is not installed, and may not be installed from here.
        BenchError: it does not answer.
    """
    if given := os.environ.get(URL):
        yield given
        return
    program, port = redis_server(), free_port()
    with TemporaryDirectory(prefix="bench-redis-") as directory:
        log = Path(directory) / "redis.log"
        command = [str(program), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory]
        child = Child(command, {}, Path(directory), log)
        try:
            if not wait_until(lambda: _answers(port), lambda: child.ended, timeout_s=_READY_S):
                raise BenchError(f"Redis does not answer\n{child.last_lines()}")
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            child.stop()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
