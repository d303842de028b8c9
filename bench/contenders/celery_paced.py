"""Celery with a task's ``rate_limit``. That one is a worker's own, so each has its part of the quota.

A refused call is retried as its documentation has it, after as long as it was told.
"""

from __future__ import annotations

import os
from typing import Any

from celery.signals import worker_ready

from bench.caller import call_from_thread
from bench.contenders import celery_app
from bench.contenders.plain import declare

__all__ = ["app", "declare", "message"]

app, message = celery_app.app, celery_app.message
_rate_per_s = int(os.environ["BENCH_QUOTA"]) / float(os.environ["BENCH_PERIOD_S"])
_part = _rate_per_s / int(os.environ["BENCH_PROCESSES"])


# In place of the task that calls nothing: messages name it.
@app.task(name="bench", bind=True, max_retries=None, rate_limit=f"{_part}/s")
def handle(self: Any, number: int, text: str) -> None:
    retry_after_s = call_from_thread()
    if retry_after_s is not None:
        raise self.retry(countdown=retry_after_s)


@worker_ready.connect
def tell(**_: Any) -> None:
    print("ready", flush=True)  # noqa: T201 - to whoever started it
