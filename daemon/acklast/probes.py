"""Answers probes over HTTP: whether this process gets on, whether it is ready, and its metrics.

It runs in the event loop, asks no server, and holds nothing up: a loop that stands still answers nothing, and
a process that ends lets whoever still asks go.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acklast.config.health import Listen
from acklast.errors import AcklastError, ConfigError, Exit
from acklast.health import Health
from acklast.telemetry.events import Emitter
from acklast.telemetry.prometheus import load, render
from acklast.telemetry.snapshot import Snapshot

if TYPE_CHECKING:
    from aiohttp import web

_CLOSE_S: Final = 1.0
_UNHEARD: Final = logging.getLogger("acklast.probes")
_UNHEARD.disabled = True
"""What strangers send is not for our log: the library would show it there, with a traceback."""
_ELSEWHERE: Final = "Name another one: listen in [health]"


class AddressTaken(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """Somebody else listens there. It may be gone the next time."""

    exit = Exit.UNAVAILABLE

    def __init__(self, at: Listen) -> None:
        super().__init__(
            f"the address {at} of [health] is in use",
            "Give each process on this host one of its own, or end the one that listens there",
        )


class Probes:
    """Answers from ``start`` to ``close``; does nothing where it is not told an address."""

    def __init__(
        self,
        at: Listen | None,
        state_dir: Path,
        emitter: Emitter,
        stuck: Callable[[], str],
        health: Callable[[], Health] | None = None,
        metrics: Callable[[], Snapshot] | None = None,
    ) -> None:
        """``stuck``: why this process does not get on, or nothing. ``health``: how a daemon is.

        ``metrics`` takes them as they are at the moment.

        A Unix socket with a relative path lies in ``state_dir``.
        """
        self._at = at
        self._state_dir = state_dir
        self._emitter = emitter
        self._stuck = stuck
        self._health = health
        self._snapshot = metrics
        self._runner: web.AppRunner | None = None
        self._socket: socket.socket | None = None
        self._file: tuple[int, int] | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            AddressTaken: somebody else does.
            ConfigError: it cannot be done there.
        """
        if self._at is None:
            return
        # Here: it costs a start a tenth of a second, and most need none.
        from aiohttp import web

        sock = self._open(self._at)
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        if self._health is not None:
            app.router.add_get("/readyz", self._readyz)
        if self._snapshot is not None:
            load()
            app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None, logger=_UNHEARD, shutdown_timeout=_CLOSE_S / 2)
        await self._runner.setup()
        await web.SockSite(self._runner, sock).start()
        self._emitter.notice("health.listening", address=str(self._at))

    async def close(self) -> None:
        """Let go whoever asks, within a second."""
        if self._runner is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._runner.cleanup()
        if self._socket is not None:
            self._socket.close()
        if self._at is not None and self._file is not None:
            path = self._path(self._at)
            with suppress(OSError):
                # Somebody may have put another one in its place.
                if _identity(path) == self._file:
                    path.unlink()

    async def _livez(self, _: web.Request) -> web.Response:
        why = self._stuck()
        return _answer({"live": not why, "why": why}, ok=not why)

    async def _readyz(self, _: web.Request) -> web.Response:
        assert self._health is not None
        health = self._health()
        return _answer(asdict(health), ok=health.ready)

    async def _metrics(self, request: web.Request) -> web.Response:
        from aiohttp import web

        assert self._snapshot is not None
        text, content_type = await render(self._snapshot(), request.headers.get("Accept", ""))
        headers = {"Cache-Control": "no-store", "Content-Type": content_type}
        answer = web.Response(body=text, headers=headers)
        answer.force_close()
        return answer

    # --- the socket ---------------------------------------------------------------------------------

    def _path(self, at: Listen) -> Path:
        return self._state_dir / at.path

    def _open(self, at: Listen) -> socket.socket:
        try:
            if at.path:
                self._socket = _unix(self._path(at))
                self._file = _identity(self._path(at))
            else:
                self._socket = _tcp(at)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressTaken(at) from None
            said = error.strerror or str(error)
            raise ConfigError(f"[health] cannot listen at {at}: {said}", _ELSEWHERE) from error
        return self._socket


def _answer(body: dict[str, Any], *, ok: bool) -> web.Response:
    from aiohttp import web

    answer = web.json_response(body, status=200 if ok else 503, headers={"Cache-Control": "no-store"})
    answer.force_close()
    return answer


def _tcp(at: Listen) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in at.host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Connections of the process before this one may still be remembered.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((at.host, at.port))
        sock.listen()
    except OSError:
        sock.close()
        raise
    return sock


def _unix(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _alone_in(path.parent):
            _remove_stale(path)
            sock.bind(str(path))
            sock.listen()  # from here on nobody takes it for stale
    except OSError:
        sock.close()
        raise
    return sock


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Two that start at once must not both replace what a third one has left."""
    held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _remove_stale(path: Path) -> None:
    """Remove the socket of a process that is gone; anything else stays.

    Raises:
        OSError: something else is there, or somebody listens.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, "a file that is no socket has this name")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.setblocking(False)
            try:
                asking.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
                return
            except BlockingIOError:
                pass  # it listens, and is busy
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino
