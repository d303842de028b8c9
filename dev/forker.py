"""Daemon processes that are forked off one which has imported the product already.

To import it takes about a second of processor time, more than most tests of a daemon need for all the rest,
and they start some hundreds. So one process imports it and does nothing else; each daemon is a fork of that,
with an environment, a directory and a log of its own, and from there on runs the command as a new process
would. Tests of how a daemon starts and ends start the command itself: ``Daemon(..., fresh=True)``.

As a program it is that one process: ``python -m dev.forker DESCRIPTOR``. It ends, and kills its daemons,
when the other end of the socket closes.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, NoReturn, Self

_MOST: Final = 60_000
"""Bytes of an order: what a packet of a local socket surely takes."""


# --- the side of the tests ----------------------------------------------------------------------


class Forked:
    """One process that was asked for, as much of ``subprocess.Popen`` as tests use."""

    def __init__(self, report: int) -> None:
        self._report = os.fdopen(report, "rb", buffering=0)
        self.returncode: int | None = None
        self.pid = int(self._line())

    def poll(self) -> int | None:
        """The exit code, minus the number of the signal that killed it, or None while it runs."""
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            self._ended()
        return self.returncode

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        return self._ended() if self.returncode is None else self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self) -> int:
        self.returncode = int(self._line())
        self._report.close()
        return self.returncode

    def _line(self) -> bytes:
        line = self._report.readline()
        if not line:
            self._report.close()
        assert line, "the process that forks daemons has died: its own message is above"
        return line


class Forker:
    """The process that forks daemons. Any thread may ask it."""

    def __init__(self, python_path: str) -> None:
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dev.forker", str(other.fileno())],
                env={**os.environ, "PYTHONPATH": python_path},
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
            )

    def start(self, arguments: Sequence[str], env: Mapping[str, str], directory: Path, log: int) -> Forked:
        """``acklast`` with these arguments, its output into the open file ``log``."""
        ours, theirs = os.pipe()
        order = json.dumps([list(arguments), dict(env), str(directory)]).encode()
        assert len(order) <= _MOST, "the environment is too large to hand on"
        try:
            socket.send_fds(self._channel, [order], [log, theirs])
        finally:
            os.close(theirs)
        return Forked(ours)

    def close(self) -> None:
        self._channel.close()
        self._process.wait()


_one_at_a_time = threading.Lock()


def forker(python_path: str) -> Forker:
    """The one of this test session, started when it is first asked for."""
    with _one_at_a_time:
        return _started(python_path)


@cache
def _started(python_path: str) -> Forker:
    made = Forker(python_path)
    atexit.register(made.close)
    return made


# --- the side of the daemons --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Order:
    arguments: list[str]
    env: dict[str, str]
    directory: str
    log: int
    report: int

    @classmethod
    def read(cls, channel: socket.socket) -> Self | None:
        """The next one; None when there will be no more."""
        text, descriptors, _, _ = socket.recv_fds(channel, _MOST, 2)
        return cls(*json.loads(text), *descriptors) if text else None


def _serve(channel: socket.socket) -> _Order:
    """Fork for each order. Comes back in the children alone, with what they are to become."""
    running: dict[int, int] = {}
    woken = _wake_at_an_end()
    while True:
        ready, _, _ = select.select([channel.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report_ends(running)
        if channel.fileno() in ready:
            order = _Order.read(channel)
            if order is None:
                _kill_all(running)
            elif (pid := os.fork()) == 0:
                _let_go(channel, woken, running)
                return order
            else:
                os.write(order.report, b"%d\n" % pid)
                os.close(order.log)
                running[pid] = order.report


def _wake_at_an_end() -> int:
    """A descriptor that has something to read when a child ends."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake)
    # Ctrl-C is for the tests, which end us, and for the daemons, which have it back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return woken


def _report_ends(running: dict[int, int]) -> None:
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            report = running.pop(pid)
            _say(report, os.waitstatus_to_exitcode(status))


def _say(report: int, code: int) -> None:
    try:
        os.write(report, b"%d\n" % code)
    except BrokenPipeError:
        return  # the test is over and asks no more
    finally:
        os.close(report)


def _kill_all(running: dict[int, int]) -> NoReturn:
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    sys.exit()


def _let_go(channel: socket.socket, woken: int, running: dict[int, int]) -> None:
    """In a child: give up what belongs to the process that forks."""
    wake = signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel.close()
    for descriptor in (woken, wake, *running.values()):
        os.close(descriptor)


def _become(order: _Order) -> None:
    """In a child: be as a process that was started by ``python -m acklast``."""
    os.close(order.report)
    for output in (1, 2):
        os.dup2(order.log, output)
    os.close(order.log)
    os.chdir(order.directory)
    os.environ.clear()
    os.environ.update(order.env)
    sys.argv[:] = ["acklast", *order.arguments]
    sys.path[0] = order.directory
    # The one module that reads the environment when it is imported.
    importlib.reload(importlib.import_module("acklast.faults"))


def main() -> NoReturn:
    import acklast.cli.root  # this is what takes the second

    # What is there now stays for good: no collection in a child need look at it, or copy its pages.
    gc.freeze()
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
    acklast.cli.main()


if __name__ == "__main__":
    main()
