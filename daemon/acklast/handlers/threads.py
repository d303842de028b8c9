"""Threads for plain ``def`` handlers.

Daemon threads, unlike the standard executor's: a handler that never returns must not keep the process
from ending after its drain. It ends with the process, and its claim with the lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

_Work: TypeAlias = tuple[Future[Any], Callable[[], Any]]

DEFAULT_LIMIT: Final = 32


class Threads:
    """At most ``limit`` threads, each started when it is first needed."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Run ``call``, which must not raise, in a thread. The future can be cancelled until it starts."""
        future: Future[Any] = Future()
        self._work.put((future, call))
        if not self._idle.acquire(blocking=False):
            self._start()
        return future

    def close(self) -> None:
        """Let idle threads end, and busy ones after their work. Does not wait."""
        with self._lock:
            for _ in range(self._started):
                self._work.put(None)
            self._started = 0

    def _start(self) -> None:
        with self._lock:
            if self._started >= self.limit:
                return
            self._started += 1
            name = f"acklast-handler-{self._started}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, call = work
            if future.set_running_or_notify_cancel():
                future.set_result(call())
            del work, future, call  # an idle thread must not keep the last job's payload alive
            self._idle.release()
