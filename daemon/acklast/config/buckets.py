"""The wait buckets as they are configured: how long the wait queues of every lane hold a job."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

LONGEST_S: Final = 2_592_000
"""30 days. The broker's own bound is 49 days."""


def _split(value: Any) -> Any:
    """A variable of the environment is text: ``1, 5, 30``."""
    if not isinstance(value, str):
        return value
    return [int(part) if part.isdecimal() else part for part in value.replace(",", " ").split()]


def _ladder(value: tuple[int, ...]) -> tuple[int, ...]:
    if value != tuple(sorted(set(value))):
        raise ValueError("must be different whole seconds, the shortest first")
    if value[0] != 1:
        # What remains below the shortest bucket is waited for in it: a retry would be late by all of it.
        raise ValueError("must begin with 1: no retry is late by more than the shortest bucket")
    return value


WaitBucketsS = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=LONGEST_S)], ...],
    BeforeValidator(_split),
    Field(min_length=1, max_length=20),
    AfterValidator(_ladder),
]
