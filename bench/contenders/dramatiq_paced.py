"""Dramatiq with its ``WindowRateLimiter`` over Redis, which all processes share.

Whoever finds the window full is tried again by the middleware, as its documentation has it; its back-off is
as short as the quota's period, for the usual one of 15 s and more would leave most of the quota unused.
"""

from __future__ import annotations

import os

import dramatiq
from dramatiq.errors import Retry
from dramatiq.rate_limits import WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend

from bench.caller import call_from_thread
from bench.contenders.dramatiq_app import broker, declare
from bench.queues import Outgoing
from bench.redis import URL
from bench.site import QUEUE, text

__all__ = ["broker", "declare", "message"]

_period_s = max(1, round(float(os.environ["BENCH_PERIOD_S"])))
_limiter = WindowRateLimiter(
    RedisBackend(url=os.environ[URL]), "bench", limit=int(os.environ["BENCH_QUOTA"]), window=_period_s
)


@dramatiq.actor(
    actor_name="paced", queue_name=QUEUE, max_retries=None, min_backoff=100, max_backoff=1000 * _period_s
)
def handle(number: int, text: str) -> None:
    with _limiter.acquire():
        retry_after_s = call_from_thread()
    if retry_after_s is not None:
        raise Retry("the provider refused", delay=int(1000 * retry_after_s))


def message(number: int) -> Outgoing:
    """As ``handle.send(number, text)`` would send it."""
    return Outgoing(handle.message(number, text(number)).encode())
