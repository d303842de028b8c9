"""The client against real sockets: what was sent and what was not, TLS, redirects, kept connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias

import pytest
from aiohttp import web

from acklast import errors
from acklast.handlers.context import Context
from acklast.handlers.http_lane import HttpLane, http_job, trusting
from acklast.http.classify import NO_RULES
from acklast.http.client import Connecting
from acklast.http.request import RequestTemplate
from harness.downstream import Answer, downstream, hangs, says
from harness.jobs import envelope
from harness.waiting import eventually

Attempt: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


@asynccontextmanager
async def lane(url: str, *, method: str = "POST", **more: Any) -> AsyncIterator[Attempt]:
    """An HTTP lane to this URL: a function that makes one attempt."""
    spec = {"excerpt_bytes": more.pop("excerpt_bytes", 0)}
    connecting = {"pool": 2, "connect_s": 5.0, "read_s": 5.0, "keep_alive_s": 30.0} | more
    job = http_job(
        HttpLane(
            lane="lane",
            request=RequestTemplate.of("lane", method=method, url=url),
            rules=NO_RULES,
            connecting=Connecting(**connecting),
            **spec,
        )
    )

    async def attempt() -> Any:
        return await job.call(job.decode(envelope()), Context("k-1", "lane"))

    assert job.close is not None
    try:
        yield attempt
    finally:
        await job.close()


def refusing() -> str:
    """A port of which it is sure that nobody listens: bound, and not listening."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/"


# --- before anything was sent ----------------------------------------------------------------------------


async def test_a_refused_connection_did_nothing() -> None:
    async with lane(refusing()) as attempt:
        with pytest.raises(errors.Transient, match="not_sent:connect"):
            await attempt()


async def test_a_name_that_nobody_knows_did_nothing() -> None:
    async with lane("http://nowhere.invalid/") as attempt:
        with pytest.raises(errors.Transient, match="not_sent:dns"):
            await attempt()


async def test_a_host_that_never_finishes_its_handshake_did_nothing() -> None:
    async with silent() as host, lane(host.url, connect_s=0.2) as attempt:
        with pytest.raises(errors.Transient, match="not_sent:connect_timeout"):
            await attempt()


async def test_an_attempt_that_is_stopped_while_it_connects_did_nothing() -> None:
    async with silent() as host, lane(host.url) as attempt:
        going = asyncio.create_task(attempt())
        await host.connected.wait()
        going.cancel()
        with pytest.raises(errors.Transient, match="not_sent:timeout"):
            await going


@asynccontextmanager
async def silent() -> AsyncIterator[Silent]:
    """A server that takes connections and never says a word."""
    made = Silent()
    server = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        async with server:
            yield made
    finally:
        await asyncio.gather(*made.ending)


class Silent:
    url = ""

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.ending: list[asyncio.Task[None]] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.ending.append(task)
        self.connected.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()


# --- TLS -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private authority (``ca.pem``) and a certificate of it for 127.0.0.1 (``server.pem``)."""
    home = tmp_path_factory.mktemp("tls")
    openssl = (
        "openssl",
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-x509",
    )
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    run(
        *openssl,
        *usage,
        "-keyout",
        home / "ca.key",
        "-out",
        home / "ca.pem",
        "-subj",
        "/CN=private authority",
    )
    run(
        *(*openssl, "-CA", home / "ca.pem", "-CAkey", home / "ca.key", "-subj", "/CN=downstream"),
        *("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"),
        *("-keyout", home / "server.key", "-out", home / "server.pem"),
    )
    return home


def run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


def serving(authority: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "server.pem", authority / "server.key")
    return context


async def test_a_private_authority_is_trusted_where_it_is_named(authority: Path) -> None:
    tls = trusting(str(authority / "ca.pem"))
    async with downstream(says(200), tls=serving(authority)) as api, lane(api.url, tls=tls) as attempt:
        assert await attempt() == {"status": 200}
        assert await attempt() == {"status": 200}
        assert api.connections == 1


async def test_a_certificate_that_nobody_vouches_for_gets_nothing(authority: Path) -> None:
    async with downstream(says(200), tls=serving(authority)) as api, lane(api.url) as attempt:
        with pytest.raises(errors.Transient, match="not_sent:tls"):
            await attempt()
        assert api.calls == []


# --- connections that are kept -----------------------------------------------------------------------------


async def test_a_connection_that_the_server_closed_while_it_was_idle_costs_nothing() -> None:
    """Its end is in the socket and the loop has not read it: the next request must not go there."""
    with Closing() as server:
        async with lane(server.url) as attempt:
            for count in range(1, 4):
                assert await attempt() == {"status": 200}
                assert server.calls == count
                server.end_connection()  # blocks, so that the loop sees nothing of it


class Closing:
    """A server in a thread of its own that promises to keep a connection and then ends it when it is told."""

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        self.calls = 0
        self._end, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()

    def end_connection(self) -> None:
        self._ended.clear()
        self._end.set()
        assert self._ended.wait(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                assert connection.recv(65536)
                self.calls += 1
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n")
                self._end.wait(10)
                self._end.clear()
            self._ended.set()


@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "DELETE"])
async def test_a_request_that_was_sent_is_never_sent_again(method: str) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if len(api.calls) > 1:
            assert request.transport is not None
            request.transport.abort()
        return web.Response()

    async with downstream(answer) as api, lane(api.url, method=method) as attempt:
        assert await attempt() == {"status": 200}
        with pytest.raises(errors.Unknown, match="cut_off:disconnected"):
            await attempt()
        assert len(api.calls) == 2
        assert api.connections == 1


async def test_an_idle_connection_may_be_kept_for_no_time() -> None:
    async with downstream(says(200)) as api, lane(api.url, keep_alive_s=0) as attempt:
        await attempt()
        await attempt()
        assert api.connections == 2


# --- the answer --------------------------------------------------------------------------------------------


async def test_a_long_answer_is_read_no_further_than_is_worth_it() -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)
            sent += 65536

    async with downstream(answer) as api, lane(api.url, excerpt_bytes=10) as attempt:
        assert await attempt() == {"status": 200, "excerpt": "x" * 10}
        await eventually(lambda: api.busy == 0, what="the server saw its connection close")
        assert sent < 50_000_000


async def test_an_answer_of_moderate_length_keeps_its_connection() -> None:
    async with downstream(says(200, "y" * 60_000)) as api, lane(api.url, excerpt_bytes=4) as attempt:
        assert await attempt() == {"status": 200, "excerpt": "yyyy"}
        assert await attempt() == {"status": 200, "excerpt": "yyyy"}
        assert api.connections == 1


async def test_what_is_no_http_was_sent_all_the_same() -> None:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-nonsense\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server, lane(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/") as attempt:
        with pytest.raises(errors.Unknown, match="cut_off:"):
            await attempt()


async def test_an_attempt_that_is_stopped_after_it_was_sent_says_nothing_of_its_own() -> None:
    async with downstream(hangs) as api, lane(api.url) as attempt:
        going = asyncio.create_task(attempt())
        await eventually(lambda: api.calls, what="the request is there")
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going


# --- redirects ---------------------------------------------------------------------------------------------


def leading(target: str, hops: int = 1) -> Answer:
    """Redirect so often to a path that tells how many are left, then answer 200."""

    async def answer(request: web.Request) -> web.StreamResponse:
        left = int(request.query.get("left", hops))
        if left == 0:
            return web.Response()
        return web.Response(status=307, headers={"Location": f"{target}?left={left - 1}"})

    return answer


async def test_a_redirect_is_an_answer_like_another() -> None:
    async with downstream(leading("/there")) as api, lane(api.url) as attempt:
        with pytest.raises(errors.Permanent, match="http_307"):
            await attempt()
        assert len(api.calls) == 1


async def test_redirects_are_followed_as_far_as_they_may() -> None:
    async with downstream(leading("/there", hops=2)) as api:
        async with lane(api.url, max_redirects=2) as attempt:
            assert await attempt() == {"status": 200}
        assert [call.headers["Idempotency-Key"] for call in api.calls] == ['"k-1"'] * 3
        async with lane(api.url, max_redirects=1) as attempt:
            with pytest.raises(errors.Permanent, match="http_redirect"):
                await attempt()


async def test_a_redirect_to_elsewhere_takes_nothing_along() -> None:
    async with downstream(says(200)) as other, downstream(leading(f"{other.url}/there")) as api:
        async with lane(api.url, max_redirects=5) as attempt:
            with pytest.raises(errors.Permanent, match="http_redirect"):
                await attempt()
        assert other.calls == []
