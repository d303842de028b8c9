"""Credentials that are changed under a running daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from acklast.errors import ConfigError, Exit
from acklast.ledger.api import State
from acklast.ledger.connect import Address
from harness import eventually
from harness.broker import Broker
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]


def with_login(url: str, user: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}"))


@pytest.fixture
def user(broker: Broker) -> Iterator[str]:
    """A user of the test's virtual host, with the password ``old``."""
    name, vhost = f"rotating-{broker.vhost}", quote(broker.vhost, safe="")
    broker.management.call("PUT", f"users/{name}", {"password": "old", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    broker.management.call("PUT", f"permissions/{vhost}/{name}", everything)
    yield name
    broker.management.call("DELETE", f"users/{name}")


def cut(broker: Broker, user: str) -> bool:
    """End the user's connections, once the API shows them: its list lags behind by seconds."""
    connections = broker.management.call("GET", "connections")
    mine = [one["name"] for one in connections if one.get("user") == user]
    for name in mine:
        broker.management.call("DELETE", f"connections/{quote(name, safe='')}")
    return bool(mine)


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_daemon_reconnects_with_the_password_of_now(
    new_site: NewSite, broker: Broker, user: str, tmp_path: Path
) -> None:
    secret = tmp_path / "broker-url"
    secret.write_text(with_login(broker.url, user, "old"))
    async with new_site() as place:
        with place.daemon(env={"ACKLAST__BROKER__URL_FILE": str(secret)}) as daemon:
            await daemon.ready()
            broker.management.call("PUT", f"users/{user}", {"password": "new", "tags": ""})
            await eventually(lambda: cut(broker, user), what="the user's connections are known and cut")
            await daemon.says("broker.unavailable")
            secret.write_text(with_login(broker.url, user, "new"))
            await daemon.says("broker.urls_changed")
            await place.publish(scripted("after", "done"))
            await place.reaches("after", State.DONE)
            assert await daemon.drained() == Exit.OK


async def test_the_ledger_is_connected_to_with_the_dsn_of_now(ledger_dsn: str) -> None:
    now = [ledger_dsn.replace("@", "-wrong@")]
    address = Address.of(lambda: now[0])
    with pytest.raises(ConfigError, match="refuses"):
        await address.open()
    now[0] = ledger_dsn
    connection = await address.open()
    assert await connection.fetchval("select 1") == 1
    await connection.close()
