"""A daemon answers probes: from its start to the end of its drain, whatever is away."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pytest

from acklast.errors import Exit
from harness import Broker, eventually
from harness.daemon import Daemon
from harness.probing import probe, probed
from harness.proxy import Away
from harness.scripted import LANE
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

HEALTH = """
[health]
listen = "unix:h.sock"
relay_listen = "unix:relay.sock"
"""
ONCE = pytest.mark.parametrize("receiver", ["bulk"], indirect=True)


def socket_of(place: Site, name: str = "h.sock") -> Path:
    return place.directory / "state" / name


async def becomes(place: Site, status: int, says: Callable[[Any], bool] = lambda _: True) -> Any:
    """Wait until ``/readyz`` answers so, and a document that fits; the document."""

    async def so() -> Any:
        found, body = await probed(socket_of(place), "/readyz")
        return body if found == status and says(body) else None

    return await eventually(so, 60, f"/readyz answers {status}")


@ONCE
async def test_it_says_what_is_away_and_stays_live(
    new_site: NewSite, broker: Broker, ledger_dsn: str
) -> None:
    rabbit, postgres = Away(broker.url), Away(ledger_dsn)
    env = {"ACKLAST_BROKER_URL": await rabbit.here(), "ACKLAST_LEDGER_DSN": await postgres.here()}
    secrets = [urlsplit(url).password for url in (broker.url, ledger_dsn)]
    async with new_site(more=HEALTH, lease_s=3) as place:
        with place.daemon(env=env) as daemon:
            await daemon.ready()
            well = await becomes(place, 200)
            assert well["lanes"][LANE] == {"ready": True, "state": "open", "why": ""}

            await postgres.gone()
            body = await becomes(place, 503, lambda body: not body["ledger"]["ok"])
            assert not any(secret and secret in str(body) for secret in secrets)
            assert (await probe(socket_of(place), "/livez"))[0] == 200
            await postgres.here()
            await becomes(place, 200)

            await rabbit.gone()
            body = await becomes(place, 503, lambda body: not body["broker"]["ok"])
            assert body["lanes"][LANE]["state"] == "not_consuming"
            assert not any(secret and secret in str(body) for secret in secrets)
            assert (await probe(socket_of(place), "/livez"))[0] == 200
            await rabbit.here()
            await becomes(place, 200)
            assert await daemon.drained() == Exit.OK
    await rabbit.gone()
    await postgres.gone()


@ONCE
async def test_a_pause_is_ready_and_a_drain_is_not_and_waits_for_no_probe(new_site: NewSite) -> None:
    async with new_site(more=HEALTH, drain_s=60) as place:
        with place.daemon() as daemon:
            await daemon.ready()
            await place.publish(scripted("long", {"do": "wait", "gate": "go"}))
            await eventually(lambda: len(place.log.calls()) == 1)
            await place.command("lanes", "pause", LANE, "--reason", "incident", "--as", "duty")
            await becomes(place, 200, lambda body: body["lanes"][LANE]["state"] == "paused")

            _, silent = await asyncio.open_unix_connection(str(socket_of(place)))
            daemon.signal(signal.SIGTERM)
            body = await becomes(place, 503, lambda body: body["draining"])
            assert (body["why"], body["lanes"][LANE]["state"]) == ("draining", "draining")
            assert (await probe(socket_of(place), "/livez"))[0] == 200
            place.open_gate("go")
            assert await daemon.ended() == Exit.OK
            silent.close()
            assert not socket_of(place).exists()


@ONCE
async def test_what_a_kill_leaves_is_replaced_and_what_another_one_has_is_not(
    new_site: NewSite,
) -> None:
    async with new_site(more=HEALTH) as place:
        with place.daemon() as daemon:
            await daemon.ready()
            daemon.process.kill()
            daemon.process.wait()
        assert socket_of(place).exists()
        with place.daemon() as again:
            await again.ready()
            await becomes(place, 200)
            with place.daemon("two") as second:
                assert await second.ended() == Exit.UNAVAILABLE
                assert "unix:h.sock of [health] is in use" in second.text()
            assert await again.drained() == Exit.OK


@ONCE
async def test_the_relay_is_live_too(new_site: NewSite) -> None:
    async with new_site(more=HEALTH) as place:
        socket_of(place).parent.mkdir(exist_ok=True)
        with Daemon(place.config, "one", env={}, command="relay") as relay:
            await relay.says("relay.ready")
            assert (await probe(socket_of(place, "relay.sock"), "/livez"))[0] == 200
            assert (await probe(socket_of(place, "relay.sock"), "/readyz"))[0] == 404
            assert await relay.drained() == Exit.OK
