"""The broker and the ledger that tests and the demo run on: given by the environment, or private ones.

As a program, from the root of the repository:

    python -m dev.stack run -- COMMAND...   COMMAND with ACKLAST_BROKER_URL and ACKLAST_LEDGER_DSN set
    python -m dev.stack up                  both servers until Ctrl-C, their addresses printed
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from dev.need import Missing
from dev.postgres import Cluster
from dev.rabbitmq import Management, Node, Tls
from dev.workspace import StackError, Workspace

BROKER = "ACKLAST_BROKER_URL"
LEDGER = "ACKLAST_LEDGER_DSN"
MANAGEMENT = "ACKLAST__BROKER__MANAGEMENT_URL"


@dataclass(frozen=True, slots=True)
class BrokerServer:
    """Where the broker is. ``node`` is None where the environment gave it: not ours to crash."""

    url: str
    management: Management
    node: Node | None


@dataclass(frozen=True, slots=True)
class LedgerServer:
    """Where Postgres is. ``cluster`` is None where the environment gave it: not ours to crash."""

    dsn: str
    cluster: Cluster | None


@dataclass(frozen=True, slots=True)
class Stack:
    """Both servers."""

    broker: BrokerServer
    ledger: LedgerServer

    def environment(self) -> dict[str, str]:
        """What a child process needs in its environment to use the same servers."""
        return {
            BROKER: self.broker.url,
            LEDGER: self.ledger.dsn,
            MANAGEMENT: self.broker.management.base,
        }


@contextmanager
def broker_server(
    env: Mapping[str, str] = os.environ, *, wait: bool = True, tls: bool = False
) -> Iterator[BrokerServer]:
    """The broker that ``env`` names, or a private one, gone again at the end.

    With ``wait`` off a private node may still be on its way up: ``node.await_ready()``. With ``tls`` a
    private node listens for that as well, and takes logins by certificate.

    Raises:
        Missing: RabbitMQ is not installed; the text says how to get it.
        StackError: it did not start.
    """
    if url := env.get(BROKER):
        yield BrokerServer(url, Management.beside(url, env.get(MANAGEMENT)), None)
        return
    with Workspace() as workspace:
        node = Node(workspace, tls=Tls.made_in(workspace) if tls else None)
        node.launch()
        if wait:
            node.await_ready()
        yield BrokerServer(node.url(), node.management, node)


@contextmanager
def ledger_server(env: Mapping[str, str] = os.environ) -> Iterator[LedgerServer]:
    """The database that ``env`` names, or an empty one of a private Postgres, gone again at the end.

    Raises:
        Missing: Postgres is not installed; the text says how to get it.
        StackError: it did not start.
    """
    if dsn := env.get(LEDGER):
        yield LedgerServer(dsn, None)
        return
    with Workspace() as workspace:
        cluster = Cluster(workspace)
        cluster.start()
        yield LedgerServer(cluster.create_database("acklast"), cluster)


@contextmanager
def stack(env: Mapping[str, str] = os.environ) -> Iterator[Stack]:
    """Both servers, ready.

    Raises:
        Missing: a program is not installed; the text says how to get it.
        StackError: a server did not start.
    """
    # The broker takes several seconds to come up, Postgres two: both at once.
    with broker_server(env, wait=False) as broker, ledger_server(env) as ledger:
        if broker.node:
            broker.node.await_ready()
        yield Stack(broker, ledger)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a program's progress


def _ended_by(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _run(command: Sequence[str]) -> int:
    _say("starting broker and ledger")
    with stack() as servers:
        child = subprocess.Popen(list(command), env={**os.environ, **servers.environment()})
        # The child decides when to end; the servers stay until it has.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda got, _: child.send_signal(got))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the child as well
        code = child.wait()
    return code if code >= 0 else 128 - code


def _up() -> NoReturn:
    _say("starting broker and ledger")
    with stack() as servers:
        for name, value in servers.environment().items():
            print(f"export {name}={value}", flush=True)  # noqa: T201 - the program's output
        _say("ready; Ctrl-C ends both")
        while True:
            signal.pause()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.stack", description=(__doc__ or "").splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    run = actions.add_parser("run", help="run a command with both servers")
    run.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND...")
    actions.add_parser("up", help="keep both servers up until Ctrl-C")
    chosen = parser.parse_args(argv)
    # SIGINT too: a shell that starts a program in the background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended_by)
    try:
        if chosen.action == "up":
            _up()
        command = chosen.command[1:] if chosen.command[:1] == ["--"] else chosen.command
        return _run(command) if command else parser.error("run needs a command")
    except (Missing, StackError) as problem:
        _say(f"dev.stack: {problem}")
        return 69


if __name__ == "__main__":
    sys.exit(main())
