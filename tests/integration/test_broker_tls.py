"""TLS to the broker: certificates both ways, a login by certificate alone, and what each refusal says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import pytest

from acklast.broker import Link
from acklast.config.tls import Auth, Tls
from acklast.errors import BrokerRefused, BrokerUnavailable, Exit
from acklast.ledger.api import State
from acklast.management import looked_into
from acklast.telemetry.events import Emitter
from acklast_topology import BrokerUnreachable, Names, Publisher, Status, plan_for
from acklast_topology.declare import apply
from acklast_topology.finding import Found
from dev.certificates import Authority, Pair
from harness import Broker, eventually
from harness.command import Command
from harness.secure import Secure, secured
from harness.site import Site, one_receiver_else_soak, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

PLAN = plan_for(Names(), ["work"])


@pytest.fixture
def secure(broker: Broker) -> Iterator[Secure]:
    if broker.node is None or broker.node.tls is None:
        pytest.skip("the broker is given by ACKLAST_BROKER_URL: its certificates are not ours")
    with secured(broker, broker.node.tls) as made:
        yield made


def told(secure: Secure, *, url: str = "", ca: Path | None = None, pair: Pair | None = None) -> str:
    """A URL as the configuration makes it for a login by certificate."""
    pair = pair or secure.pair
    return Tls(ca or secure.tls.authority.cert, pair.cert, pair.key, Auth.EXTERNAL).told_to(url or secure.url)


async def refusal_of(url: str, *, bulk: bool) -> BrokerUnavailable:
    link = Link([url], "test", Emitter(), bulk=bulk)
    with pytest.raises(BrokerUnavailable) as raised:
        await link.connect()
    await link.close()
    return raised.value


def cut(broker: Broker, user: str) -> bool:
    """End the user's connections, once the API shows them: its list lags behind by seconds."""
    connections = broker.management.call("GET", "connections")
    mine = [one["name"] for one in connections if one.get("user") == user]
    for name in mine:
        broker.management.call("DELETE", f"connections/{quote(name, safe='')}")
    return bool(mine)


@one_receiver_else_soak
async def test_a_daemon_logs_in_by_its_certificate_alone(new_site: NewSite, secure: Secure) -> None:
    async with new_site() as place:
        with place.daemon(env=secure.env()) as daemon:
            await daemon.ready()
            await place.publish(scripted("once", "done"), scripted("again", "transient", "done"))
            await place.reaches("once", State.DONE)
            await place.reaches("again", State.DONE)
            names = {one["user"] for one in await connections(secure)}
            assert names == {secure.user}
            assert await daemon.drained() == Exit.OK


async def connections(secure: Secure) -> list[dict[str, str]]:
    """Those by TLS in the test's virtual host, once the API knows both of a daemon."""
    path = f"vhosts/{quote(secure.broker.vhost, safe='')}/connections"

    def both() -> list[dict[str, str]]:
        found = [one for one in secure.broker.management.call("GET", path) if one.get("ssl")]
        return found if len(found) == 2 else []

    return await eventually(both, what="the API knows the daemon's two connections")


@pytest.mark.parametrize("receiver", ["bulk"], indirect=True)
async def test_a_renewed_certificate_is_used_at_the_next_connection(
    new_site: NewSite, secure: Secure, tmp_path: Path
) -> None:
    async with new_site() as place:
        with place.daemon(env=secure.env()) as daemon:
            await daemon.ready()
            # One that no broker takes: the file that the daemon was started with is read again.
            stranger = Authority(tmp_path).issue("stranger")
            good = {path: path.read_bytes() for path in (secure.pair.cert, secure.pair.key)}
            secure.pair.cert.write_bytes(stranger.cert.read_bytes())
            secure.pair.key.write_bytes(stranger.key.read_bytes())
            await eventually(lambda: cut(secure.broker, secure.user), what="the connections are cut")
            assert "cert_file" in (await daemon.says("broker.unavailable"))["remedy"]
            for path, content in good.items():
                path.write_bytes(content)
            await place.publish(scripted("after", "done"))
            await place.reaches("after", State.DONE)
            assert await daemon.drained() == Exit.OK


@pytest.mark.parametrize("bulk", [False, True])
async def test_a_broker_of_an_unknown_authority_is_refused_with_the_remedy(
    secure: Secure, bulk: bool, tmp_path: Path
) -> None:
    refused = await refusal_of(told(secure, ca=Authority(tmp_path).cert), bulk=bulk)
    assert isinstance(refused, BrokerRefused)
    assert "its certificate is not trusted: self-signed certificate" in refused.what
    assert "ca_file" in refused.remedy


@pytest.mark.parametrize("bulk", [False, True])
async def test_without_a_client_certificate_the_remedy_is_named(secure: Secure, bulk: bool) -> None:
    url = Tls(secure.tls.authority.cert, None, None, Auth.PLAIN).told_to(secure.url_with_password)
    refused = await refusal_of(url, bulk=bulk)
    # The broker hangs up as soon as it misses it, which now and then arrives before its reason does.
    assert "cert_file" in refused.remedy
    assert secure.user not in str(refused)


@pytest.mark.parametrize("bulk", [False, True])
async def test_a_certificate_that_names_no_user_is_refused_with_the_remedy(
    secure: Secure, bulk: bool
) -> None:
    refused = await refusal_of(told(secure, pair=secure.tls.authority.issue("nobody-knows")), bulk=bulk)
    assert isinstance(refused, BrokerRefused)
    assert "mechanism EXTERNAL" in refused.what
    assert "user by the name in the certificate" in refused.remedy


async def test_a_port_that_speaks_no_tls_is_said_to_be_one(secure: Secure) -> None:
    plain_port = secure.url.replace(f":{secure.tls.amqps}/", f":{node_port(secure)}/")
    refused = await refusal_of(told(secure, url=plain_port), bulk=True)
    assert "does not speak TLS" in refused.what
    tls_port = secure.broker.url.replace(f":{node_port(secure)}/", f":{secure.tls.amqps}/")
    assert "`amqps` in the URL" in (await refusal_of(tls_port, bulk=True)).remedy


async def test_a_login_that_the_broker_does_not_offer_is_named(secure: Secure) -> None:
    refused = await refusal_of(f"{secure.broker.url}?auth=external", bulk=True)
    assert isinstance(refused, BrokerRefused)
    assert "rabbitmq_auth_mechanism_ssl" in refused.remedy


def node_port(secure: Secure) -> int:
    assert secure.broker.node is not None
    return secure.broker.node.port


async def test_a_publisher_logs_in_by_its_certificate(secure: Secure, tmp_path: Path) -> None:
    async with await secure.broker.connect() as connection:
        await apply(connection, PLAN)
    async with Publisher.connect(told(secure)) as publisher:
        assert (await publisher.publish(scripted("one", "done"))).status is Status.CONFIRMED
    with pytest.raises(BrokerUnreachable, match="cafile"):
        async with Publisher.connect(told(secure, ca=Authority(tmp_path).cert)):
            pass


async def test_the_management_api_is_asked_by_tls(secure: Secure, tmp_path: Path) -> None:
    async with await secure.broker.connect() as connection:
        await apply(connection, PLAN)
    url = told(secure, url=secure.url_with_password)
    assert await looked_into(PLAN, [url], secure.https) == []
    unknown = told(secure, url=secure.url_with_password, ca=Authority(tmp_path).cert)
    [unseen] = await looked_into(PLAN, [unknown], secure.https)
    assert unseen.status is Found.UNSEEN
    assert "certificate" in unseen.detail
    [unseen] = await looked_into(PLAN, [told(secure)], secure.https)
    assert "login by certificate" in unseen.detail


def test_commands_connect_like_the_daemon(
    secure: Secure, ledger_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(tmp_path, secure.url, ledger_dsn, capsys)
    lines = [f'{key} = "{value}"' for key, value in secure.keys().items()]
    command.configure(broker="\n".join(lines))
    assert command("topology", "apply").exit == Exit.OK
    rows = tmp_path / "rows.csv"
    rows.write_text("id\n1\n2\n")
    assert command("enqueue", "cleanup", str(rows), "--run", "r", "--key", "{id}").exit == Exit.OK
    checked = command("check", "--json")
    assert checked.exit == Exit.OK, checked
    assert "certfile" not in checked.out
    secure.pair.key.unlink()
    broken = command("check")
    assert broken.exit == Exit.CONFIG
    assert f'broker.key_file = "{secure.pair.key}": cannot be read' in broken.out + broken.err
