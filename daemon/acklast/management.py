"""The broker's management API, as far as it is needed and reachable: a look at one virtual host."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from yarl import URL

from acklast.broker import vhost_of
from acklast_topology.finding import Finding, Found
from acklast_topology.inspect import inspect
from acklast_topology.plan import Plan

TIMEOUT_S: Final = 5.0
_PORT: Final = 15672
_TLS_PORT: Final = 15671


async def looked_into(plan: Plan, brokers: Sequence[str], base: str | None) -> list[Finding]:
    """What is unsafe or missing in the virtual host; where the API cannot be asked, a remark that says so.

    ``base`` is the API's address, without which it is sought at the usual port of each broker. The broker's
    own user and password are used.
    """
    reasons: list[str] = []
    for url in map(URL, brokers):
        try:
            return inspect(plan, *await _rows(url, URL(base) if base else _usual(url)))
        except aiohttp.ClientResponseError as error:
            reasons.append(f"{url.host} answers {error.status} {error.message}")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            reasons.append(f"{url.host}: {str(error) or type(error).__name__}")
    return [_unseen("; ".join(reasons))]


def _usual(url: URL) -> URL:
    secure = url.scheme == "amqps"
    return URL.build(
        scheme="https" if secure else "http",
        host=url.host or "localhost",
        port=_TLS_PORT if secure else _PORT,
    )


async def _rows(broker: URL, base: URL) -> list[list[dict[str, Any]]]:
    vhost = quote(vhost_of(broker), safe="")
    login = b64encode(f"{broker.user or 'guest'}:{broker.password or 'guest'}".encode()).decode()
    headers, timeout = {"Authorization": f"Basic {login}"}, aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, raise_for_status=True) as session:

        async def get(kind: str) -> list[dict[str, Any]]:
            url = URL(f"{str(base).rstrip('/')}/api/{kind}/{vhost}", encoded=True)
            async with session.get(url) as answer:
                rows: list[dict[str, Any]] = await answer.json()
                return rows

        return list(await asyncio.gather(*map(get, ("exchanges", "queues", "bindings"))))


def _unseen(why: str) -> Finding:
    return Finding(
        "policy",
        "policies",
        Found.UNSEEN,
        f"policies, and without configure permission arguments and bindings, cannot be seen ({why})",
        "Give the user the tag `monitoring`, and set `broker.management_url` to the API's address",
    )
