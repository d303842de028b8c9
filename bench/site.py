"""What a contender is told, by its environment: where the servers are, how much to take at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

QUEUE: Final = "bench"
BODY: Final = b'{"number":%d,"text":"%s"}'
BODY_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class Site:
    """The settings of one contender in one drain."""

    broker_url: str
    ledger_dsn: str
    prefetch: int
    concurrency: int

    @classmethod
    def of(cls, env: Mapping[str, str] = os.environ) -> Self:
        return cls(
            env["BENCH_BROKER_URL"],
            env["BENCH_LEDGER_DSN"],
            int(env["BENCH_PREFETCH"]),
            int(env["BENCH_CONCURRENCY"]),
        )

    def environment(self) -> dict[str, str]:
        return {
            "BENCH_BROKER_URL": self.broker_url,
            "BENCH_LEDGER_DSN": self.ledger_dsn,
            "BENCH_PREFETCH": str(self.prefetch),
            "BENCH_CONCURRENCY": str(self.concurrency),
        }


def text(number: int) -> str:
    """What fills a job's payload up to its size."""
    return "x" * (BODY_BYTES - len(BODY % (number, b"")))


def body(number: int) -> bytes:
    """A job's payload: JSON of 200 bytes, no two alike."""
    return BODY % (number, text(number).encode())
