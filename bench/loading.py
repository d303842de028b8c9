"""Fills a ledger with jobs that are done, by COPY."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import asyncpg

_BATCH: Final = 50_000
_RUN_JOBS: Final = 100_000
_WHOLE: Final = 2**64
_COLUMNS: Final = (
    *("lane", "key", "state", "fence", "attempts", "claims", "session"),
    *("enqueued_at", "published_at", "claimed_at", "effect_at", "recorded_at", "settled_at"),
    *("fingerprint", "type", "run"),
)


class Keys(StrEnum):
    """How keys are made."""

    RUN = "run"
    RANDOM = "random"

    @property
    def said(self) -> str:
        return "run-prefixed" if self is Keys.RUN else "random (a hash)"

    def new(self, number: int) -> str:
        """The key of a job that is published now."""
        if self is Keys.RUN:
            return f"bench:{number:08d}"
        return hashlib.blake2b(b"%d" % number, digest_size=16).hexdigest()

    def old(self, number: int, count: int) -> tuple[str, str]:
        """Key and run of the n-th of ``count`` jobs that are there already, in the order of the index."""
        run = f"archive-{number // _RUN_JOBS:04d}"
        if self is Keys.RUN:
            return f"{run}:{number:08d}", run
        # Even steps through the space of all hashes, the rest of each at random: as good as random ones,
        # sorted, and no 10 million of them to sort.
        tail = hashlib.blake2b(b"old %d" % number, digest_size=8).hexdigest()
        return f"{number * _WHOLE // count:016x}{tail}", run


def batches(count: int, keys: Keys, until: datetime) -> Iterator[bytes]:
    """The rows in COPY's text format, some ten thousand at a time; the last one was done at ``until``."""
    began = until - timedelta(days=1)
    step = timedelta(days=1) / count
    for first in range(0, count, _BATCH):
        yield b"".join(
            _line(*keys.old(number, count), (began + step * number).isoformat(" "))
            for number in range(first, min(first + _BATCH, count))
        )


def _line(key: str, run: str, at: str) -> bytes:
    digest = hashlib.sha256(key.encode()).hexdigest()
    times = "\t".join([at] * 6)
    return f"bench\t{key}\tdone\t1\t1\t1\t1\t{times}\t\\\\x{digest}\tbench.v1\t{run}\n".encode()


async def load(dsn: str, count: int, keys: Keys, until: datetime) -> None:
    """Load ``count`` rows, the last one done at ``until``.

    Leaves the server nothing to do after it: no statistics, hint bits or dirty pages to write.
    """
    connection = await asyncpg.connect(dsn)
    try:
        for batch in batches(count, keys, until):
            await _copy(connection, batch)
        await connection.execute("vacuum (analyze, freeze) acklast.jobs")
        await connection.execute("checkpoint")
    finally:
        await connection.close()


async def _copy(connection: asyncpg.Connection[Any], rows: bytes) -> None:
    await connection.copy_to_table(
        "jobs", source=io.BytesIO(rows), columns=_COLUMNS, schema_name="acklast", format="text"
    )
