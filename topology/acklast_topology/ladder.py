"""The wait buckets: how a delay of any length is made of a few queues with one fixed TTL each.

A per-message TTL is never used: RabbitMQ expires messages at the head of a queue only, so one long
delay would hold back every shorter one behind it.
"""

from __future__ import annotations

from typing import Final

BUCKETS_S: Final = (1, 5, 30, 120, 600, 3600, 21600)


def bucket_for(remaining_s: float, buckets_s: tuple[int, ...] = BUCKETS_S) -> int:
    """The wait queue, in seconds, for a job that has ``remaining_s`` seconds to wait.

    The largest bucket that is not longer than what remains, so that a job is never late by more than
    the smallest bucket; below the smallest bucket, the smallest. What remains after this hop is asked
    for again when the delivery comes back.
    """
    fitting = [bucket for bucket in buckets_s if bucket <= remaining_s]
    return max(fitting, default=min(buckets_s))
