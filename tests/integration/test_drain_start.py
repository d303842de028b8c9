"""A daemon that is told to stop while it starts: it ends at once, says so, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from harness import Broker, eventually
from harness.daemon import Daemon
from harness.proxy import Away
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]
Reached: TypeAlias = Callable[[Daemon, Away, Away], Awaitable[None]]

SOON_S = 10.0
"""A server that is silent is given up after longer."""


@pytest.fixture
def receiver() -> str:
    """What would read the deliveries has nothing to do with it."""
    return "bulk"


async def asked(server: Away) -> None:
    """Wait until somebody has connected."""
    proxy = server.proxy
    assert proxy is not None
    await eventually(lambda: proxy.accepted > 0, what="it is connected to")


async def the_ledger_is_asked(daemon: Daemon, broker: Away, ledger: Away) -> None:
    await ledger.gone()
    await asked(ledger)


async def the_broker_is_asked(daemon: Daemon, broker: Away, ledger: Away) -> None:
    await broker.gone()
    await asked(broker)


async def queues_are_declared(daemon: Daemon, broker: Away, ledger: Away) -> None:
    await daemon.says("broker.connected", role="consumer")
    await broker.gone()


async def a_session_is_opened(daemon: Daemon, broker: Away, ledger: Away) -> None:
    await daemon.says("session.opened")
    await broker.gone()


async def it_is_about_to_consume(daemon: Daemon, broker: Away, ledger: Away) -> None:
    await daemon.says("session.opened")


@pytest.mark.parametrize(
    "reached",
    [
        the_ledger_is_asked,
        the_broker_is_asked,
        pytest.param(queues_are_declared, marks=pytest.mark.soak),
        a_session_is_opened,
        it_is_about_to_consume,
    ],
)
async def test_a_stop_during_the_start(
    new_site: NewSite, broker: Broker, ledger_dsn: str, reached: Reached
) -> None:
    rabbit, postgres = Away(broker.url, hole=True), Away(ledger_dsn, hole=True)
    async with new_site() as place:
        await place.publish(scripted("waits", "done"))
        env = {"ACKLAST_BROKER_URL": await rabbit.here(), "ACKLAST_LEDGER_DSN": await postgres.here()}
        with place.daemon(env=env) as daemon:
            await reached(daemon, rabbit, postgres)
            daemon.signal(signal.SIGTERM)
            assert await daemon.ended() == Exit.OK
            _says_so(daemon)
        await asyncio.gather(rabbit.close(), postgres.close())
        assert [one["state"] for one in (await place.command("workers"))["workers"]] == []
        with place.daemon() as successor:
            await place.reaches("waits", State.DONE)
            assert await successor.drained() == Exit.OK
        assert [(call.attempt, call.ambiguous) for call in place.log.calls("waits")] == [(1, False)]


def _says_so(daemon: Daemon) -> None:
    last = daemon.log()[-1]
    assert last["event"] == "drain.receipt"
    assert (last["left"], last["unknown"], last["cut"]) == (0, 0, False)
    assert last["seconds"] < SOON_S
    assert not daemon.said("daemon.ready") or last["completed"] + last["given_back"] <= 1


IMPORTS = """
import pathlib, threading
from acklast import App
pathlib.Path("importing").touch()
while not threading.Event().wait(0.1):  # and not signal.pause(): what comes just before that is missed
    pass
app = App()
"""


async def test_a_stop_before_it_has_read_its_handlers(new_site: NewSite) -> None:
    async with new_site(app="handlers_of_mine:app") as place:
        (place.directory / "handlers_of_mine.py").write_text(IMPORTS)
        with place.daemon() as daemon:
            await eventually((place.directory / "importing").exists, 60, "it imports its handlers")
            assert await daemon.drained() == Exit.OK
            assert daemon.text() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_at_the_very_end_changes_nothing(new_site: NewSite, number: signal.Signals) -> None:
    async with new_site() as place:
        with place.daemon() as daemon:
            await daemon.ready()

            def ended() -> bool:
                """One more each time that it has not: many while it drains, some after its receipt."""
                if daemon.process.poll() is None:
                    daemon.signal(number)
                return daemon.process.poll() is not None

            await eventually(ended, 60, "it ends")
            receipt = daemon.log()[-1]
            assert receipt["event"] == "drain.receipt"
            assert daemon.process.wait() == (Exit.CUT if receipt["cut"] else Exit.OK)


async def test_what_is_away_at_the_start_is_an_error_all_the_same(
    new_site: NewSite, broker: Broker, ledger_dsn: str
) -> None:
    rabbit = Away(broker.url)
    async with new_site() as place:
        env: dict[str, Any] = {"ACKLAST_BROKER_URL": await rabbit.here()}
        await rabbit.gone()
        with place.daemon(env=env) as daemon:
            assert await daemon.ended() == Exit.UNAVAILABLE
            assert not daemon.said("drain.receipt")
