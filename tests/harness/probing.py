"""Asking a process how it is, as a probe does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp


async def probe(socket: Path, path: str, method: str = "GET") -> tuple[int, Any]:
    """The status, and the document where there is one.

    Raises:
        aiohttp.ClientError: nobody answers.
    """
    connector = aiohttp.UnixConnector(str(socket))
    async with (
        aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session,
        session.request(method, f"http://daemon{path}") as answer,
    ):
        is_json = method == "GET" and answer.content_type == "application/json"
        return answer.status, await answer.json() if is_json else await answer.text()


async def probed(socket: Path, path: str) -> tuple[int, Any]:
    """The same of a process that may not be there: status 0."""
    try:
        return await probe(socket, path)
    except (aiohttp.ClientError, OSError):
        return 0, None
