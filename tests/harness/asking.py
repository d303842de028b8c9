"""SQL asked by a test that runs in no loop of its own: the commands that it tests make theirs."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg


class Asking:
    """``asking("select ...", argument)`` gives the rows."""

    def __init__(self, dsn: str) -> None:
        self._runner = asyncio.Runner()
        self._connection = self._runner.run(asyncpg.connect(dsn))

    def __call__(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        return self._runner.run(self._connection.fetch(sql, *arguments))

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()
