"""The broker's management API, as far as it is needed and reachable: a look at one virtual host."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
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


Rows: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Seen:
    """One virtual host as the API shows it. ``policies`` is None where this user may not see them."""

    exchanges: Rows
    queues: Rows
    bindings: Rows
    policies: Rows | None


async def looked_into(
    plan: Plan, brokers: Sequence[str], base: str | None, longest_unacked_s: float = 0.0
) -> list[Finding]:
    """What is unsafe or missing in the virtual host; where the API cannot be asked, a remark that says so.

    ``base`` is the API's address, without which it is sought at the usual port of each broker. The broker's
    own user and password are used, and its certificates; it takes no login by certificate.
    """
    return inspected(plan, await seen(brokers, base), longest_unacked_s)


def inspected(plan: Plan, found: Seen | Finding, longest_unacked_s: float = 0.0) -> list[Finding]:
    """What is unsafe or missing of what was seen. ``longest_unacked_s``: how long a delivery may be held."""
    if isinstance(found, Finding):
        return [found]
    return inspect(
        plan,
        found.exchanges,
        found.queues,
        found.bindings,
        found.policies,
        longest_unacked_s=longest_unacked_s,
    )


async def seen(brokers: Sequence[str], base: str | None) -> Seen | Finding:
    """The virtual host as the API shows it; else the remark that it cannot be asked."""
    reasons: list[str] = []
    for url in map(URL, brokers):
        if url.query.get("auth") == "external" and not url.password:
            reasons.append(f"{url.host}: the login by certificate is no login there")
            continue
        try:
            return await _seen(url, URL(base) if base else _usual(url))
        except aiohttp.ClientResponseError as error:
            reasons.append(f"{url.host} answers {error.status} {error.message}")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
            reasons.append(f"{url.host}: {str(error) or type(error).__name__}")
    return _unseen("; ".join(reasons))


def _usual(url: URL) -> URL:
    secure = url.scheme == "amqps"
    return URL.build(
        scheme="https" if secure else "http",
        host=url.host or "localhost",
        port=_TLS_PORT if secure else _PORT,
    )


async def _seen(broker: URL, base: URL) -> Seen:
    vhost = quote(vhost_of(broker), safe="")
    login = b64encode(f"{broker.user or 'guest'}:{broker.password or 'guest'}".encode()).decode()
    headers, timeout = {"Authorization": f"Basic {login}"}, aiohttp.ClientTimeout(total=TIMEOUT_S)
    connector = aiohttp.TCPConnector(ssl=_trusting(broker)) if base.scheme == "https" else None
    async with aiohttp.ClientSession(
        headers=headers, timeout=timeout, raise_for_status=True, connector=connector
    ) as session:

        async def get(kind: str) -> Rows:
            url = URL(f"{str(base).rstrip('/')}/api/{kind}/{vhost}", encoded=True)
            async with session.get(url) as answer:
                rows: Rows = await answer.json()
                return rows

        async def policies() -> Rows | None:
            try:
                # An operator's are of queues alone, and what is in force of them the queues show.
                return await get("policies")
            except aiohttp.ClientResponseError:
                return None

        exchanges, queues, bindings = await asyncio.gather(*map(get, ("exchanges", "queues", "bindings")))
        return Seen(exchanges, queues, bindings, await policies())


def _trusting(broker: URL) -> ssl.SSLContext:
    """By the files that the broker's URL names, as its own connections do.

    Raises:
        OSError: a file cannot be read, or is not fit (``ssl.SSLError``).
    """
    context = ssl.create_default_context(cafile=broker.query.get("cafile"))
    if cert := broker.query.get("certfile"):
        context.load_cert_chain(cert, broker.query.get("keyfile"))
    return context


def _unseen(why: str) -> Finding:
    return Finding(
        "policy",
        "policies",
        Found.UNSEEN,
        f"policies, bindings and queues that nothing names, and without configure permission arguments,"
        f" cannot be seen ({why})",
        "Give the user the tag `monitoring`, have the URL name it with its password, and set "
        "`broker.management_url` to the API's address",
    )
