"""The server that probes ask: on a real socket, in this process."""

from __future__ import annotations

import asyncio
import logging
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from acklast.config.health import Listen
from acklast.errors import ConfigError, Exit
from acklast.health import Health, Server
from acklast.probes import AddressTaken, Probes
from acklast.telemetry import catalogue as of
from acklast.telemetry.events import Emitter, Event
from acklast.telemetry.registry import Registry
from harness.probing import probe
from harness.scraping import scrape

SOCKET = Listen(path="health.sock")
WHOLE = {"ready", "draining", "why", "lanes", "broker", "ledger", "configuration"}


class Asked:
    """What the process says of itself."""

    def __init__(self) -> None:
        self.stuck = ""
        self.ready = True

    def health(self) -> Health:
        return Health(self.ready, False, "", {}, Server(True, ""), Server(True, ""), "")


@asynccontextmanager
async def listening(directory: Path, at: Listen = SOCKET, *, daemon: bool = True) -> AsyncIterator[Asked]:
    asked = Asked()
    made = Probes(at, directory, Emitter(), lambda: asked.stuck, asked.health if daemon else None)
    await made.start()
    try:
        yield asked
    finally:
        await made.close()


async def test_a_process_is_live_until_something_stands_still(tmp_path: Path) -> None:
    async with listening(tmp_path) as asked:
        assert await probe(tmp_path / SOCKET.path, "/livez") == (200, {"live": True, "why": ""})
        asked.stuck = "the lease has ended"
        assert await probe(tmp_path / SOCKET.path, "/livez") == (
            503,
            {"live": False, "why": "the lease has ended"},
        )


async def test_ready_or_not(tmp_path: Path) -> None:
    async with listening(tmp_path) as asked:
        status, body = await probe(tmp_path / SOCKET.path, "/readyz")
        assert (status, set(body)) == (200, WHOLE)
        asked.ready = False
        assert (await probe(tmp_path / SOCKET.path, "/readyz"))[0] == 503
        assert (await probe(tmp_path / SOCKET.path, "/readyz", "HEAD")) == (503, "")


async def test_head_is_answered_and_other_paths_and_methods_are_not(tmp_path: Path) -> None:
    async with listening(tmp_path, daemon=False):
        for path, method, status in (
            ("/livez", "HEAD", 200),
            ("/livez", "POST", 405),
            ("/readyz", "GET", 404),
            ("/", "GET", 404),
            ("/metrics", "GET", 404),
        ):
            assert (await probe(tmp_path / SOCKET.path, path, method))[0] == status, path


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text; version=1.0.0"),
    ],
    ids=["text", "openmetrics"],
)
async def test_metrics_come_as_they_are_asked_for(tmp_path: Path, accept: str, content_type: str) -> None:
    registry = Registry({"rent": ""})
    path = tmp_path / SOCKET.path
    made = Probes(SOCKET, tmp_path, Emitter(), str, metrics=registry.snapshot)
    await made.start()
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
            session.get("http://daemon/metrics", headers={"Accept": accept} if accept else {}) as answer,
        ):
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith(content_type)
            assert 'acklast_jobs_done_total{lane="rent"} 0.0' in await answer.text()
        assert (await scrape(path)).value(of.JOBS_DONE) == 0
        assert await probe(path, "/metrics", "HEAD") == (200, "")
        assert (await probe(path, "/metrics", "POST"))[0] == 405
    finally:
        await made.close()


async def test_it_answers_nowhere_where_no_address_is_configured(tmp_path: Path) -> None:
    said: list[Event] = []
    made = Probes(None, tmp_path, Emitter(said.append), str)
    await made.start()
    await made.close()
    assert said == []


async def test_a_port_in_use_is_told_and_may_be_tried_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        at = Listen("127.0.0.1", other.getsockname()[1])
        with pytest.raises(AddressTaken, match=f"{at} of .health. is in use") as caught:
            async with listening(tmp_path, at):
                pass
    assert caught.value.exit is Exit.UNAVAILABLE
    async with listening(tmp_path, at):
        reader, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(b"GET /livez HTTP/1.0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 200 OK")
        writer.close()


async def test_the_socket_of_a_process_that_lives_is_not_taken(tmp_path: Path) -> None:
    async with listening(tmp_path):
        with pytest.raises(AddressTaken):
            async with listening(tmp_path):
                pass
        assert (await probe(tmp_path / SOCKET.path, "/livez"))[0] == 200
    assert not (tmp_path / SOCKET.path).exists()


async def test_the_socket_of_a_process_that_is_gone_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET.path))
        left.listen()
    async with listening(tmp_path):
        assert (await probe(tmp_path / SOCKET.path, "/livez"))[0] == 200


async def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / SOCKET.path
    path.write_text("somebody's")
    with pytest.raises(ConfigError, match="no socket has this name"):
        async with listening(tmp_path):
            pass
    assert path.read_text() == "somebody's"


async def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        async with listening(tmp_path, Listen(path="gone/health.sock")):
            pass


async def test_a_socket_that_another_one_put_there_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / SOCKET.path
    async with listening(tmp_path):
        path.rename(tmp_path / "moved")
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
    assert stat.S_ISSOCK(path.lstat().st_mode)


async def test_who_says_nothing_and_who_says_nonsense_hold_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with listening(tmp_path):
        silent, half, wild = [
            await asyncio.open_unix_connection(str(tmp_path / SOCKET.path)) for _ in range(3)
        ]
        half[1].write(b"GET /livez HTTP/1.1\r\nHost: a")
        wild[1].write(b"GET /livez HTTP/9\r\nsecret\r\n\r\n")
        assert b" 400 " in (await wild[0].read()).splitlines()[0]
        assert (await probe(tmp_path / SOCKET.path, "/livez"))[0] == 200
    for reader, writer in (silent, half):
        assert await reader.read() == b""
        writer.close()
    wild[1].close()
    assert "secret" not in caplog.text
