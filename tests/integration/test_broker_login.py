"""A broker that answers and says no is another thing than one that does not answer."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from acklast.broker import Link
from acklast.errors import BrokerRefused, BrokerUnavailable, Exit
from acklast.telemetry.events import Emitter
from dev.workspace import free_port
from harness import Broker
from harness.broker import at_vhost


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.username}:{password}@{parts.hostname}:{parts.port}").geturl()


async def refusal_of(*urls: str) -> BrokerUnavailable:
    link = Link(urls, "test", Emitter())
    with pytest.raises(BrokerUnavailable) as raised:
        await link.connect()
    await link.close()
    return raised.value


async def test_a_wrong_password_is_a_matter_of_configuration_that_no_restart_helps(broker: Broker) -> None:
    refused = await refusal_of(with_password(broker.url, "guessed-wrong"))
    assert isinstance(refused, BrokerRefused)
    assert refused.exit is Exit.CONFIG
    assert "ACCESS_REFUSED" in refused.what
    assert "guessed-wrong" not in str(refused)


async def test_a_broker_that_is_away_may_be_the_one_that_takes_the_login(broker: Broker) -> None:
    away = f"amqp://acklast:x@127.0.0.1:{free_port()}/"
    refused = await refusal_of(with_password(broker.url, "guessed-wrong"), away)
    assert not isinstance(refused, BrokerRefused)
    assert refused.exit is Exit.UNAVAILABLE


async def test_a_virtual_host_that_is_not_there_is_named(broker: Broker) -> None:
    refused = await refusal_of(at_vhost(broker.url, "nowhere"))
    assert refused.exit is Exit.UNAVAILABLE
    assert "'nowhere'" in refused.what
    assert "object at" not in refused.what
