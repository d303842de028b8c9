"""Fixtures: one broker and one Postgres for the session, an own virtual host and an own database per test.

Run side by side (``pytest -n 2 --dist loadfile``), each worker process is a session with servers of its own.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from secrets import token_hex

import pytest
from hypothesis import HealthCheck, settings

from dev.otelcol import Collector
from dev.postgres import Cluster
from dev.rabbitmq import Node
from dev.stack import (
    BrokerServer,
    LedgerServer,
    Stack,
)
from dev.stack import (
    broker_server as broker_of,
)
from dev.stack import (
    ledger_server as ledger_of,
)
from dev.workspace import keep_in_memory, share_ports
from harness import Broker, Databases
from harness.broker import at_vhost
from harness.collector import collector

pytest_plugins = ["acklast.testing.plugin", "pytester"]

# A busy machine takes any time to draw and run an example. The same ones at each run: what has passed does
# not fail by chance. `make soak` looks for new ones, and for more of them.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", _PATIENT, max_examples=25, derandomize=True, database=None)
settings.register_profile("many", _PATIENT, max_examples=200)
settings.load_profile("few")

# A test is marked by what it asks for, so that `pytest -m "not broker and not ledger"` is the quick half.
_MARKS = {"broker": "broker_server", "ledger": "ledger_server"}


def pytest_configure() -> None:
    # Ignored where a shell started us in the background, and then in every process that a test starts and
    # interrupts: it would never end.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        share_ports(int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    keep_in_memory()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        asked = set(getattr(item, "fixturenames", ()))
        for mark, server in _MARKS.items():
            if server in asked:
                item.add_marker(mark)


def pytest_collection_finish() -> None:
    # Thousands of tests, which stay: without this each full collection of garbage looks at all of them again.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def broker_server() -> Iterator[BrokerServer]:
    """The broker of the whole session: the one that the environment names, or a private one."""
    with broker_of(tls=True) as server:
        assert server.management.answers(), (
            f"the broker's management API does not answer at {server.management.base}: each test makes a "
            "virtual host through it. Enable rabbitmq_management, or set ACKLAST__BROKER__MANAGEMENT_URL"
        )
        yield server


@pytest.fixture(scope="session")
def ledger_server() -> Iterator[LedgerServer]:
    """The Postgres of the whole session: the one that the environment names, or a private one."""
    with ledger_of() as server:
        yield server


@pytest.fixture(scope="session")
def stack(broker_server: BrokerServer, ledger_server: LedgerServer) -> Stack:
    """Both servers."""
    return Stack(broker_server, ledger_server)


@pytest.fixture(scope="session")
def session_name() -> str:
    """Unique in the session's broker and Postgres, which others may share."""
    return f"acklast_test_{token_hex(4)}"


@pytest.fixture
def broker(broker_server: BrokerServer, session_name: str) -> Iterator[Broker]:
    """A fresh virtual host of the session's broker."""
    vhost = f"{session_name}_{token_hex(4)}"
    broker_server.management.create_vhost(vhost)
    yield Broker(at_vhost(broker_server.url, vhost), vhost, broker_server.management, broker_server.node)
    broker_server.management.delete_vhost(vhost)


@pytest.fixture
def broker_node(broker_server: BrokerServer) -> Node:
    """The private node itself, for a test that crashes it. The test leaves it running."""
    if broker_server.node is None:
        pytest.skip("the broker is given by ACKLAST_BROKER_URL: not ours to crash")
    return broker_server.node


@pytest.fixture
def ledger_cluster(ledger_server: LedgerServer) -> Cluster:
    """The private Postgres itself, for a test that crashes it. The test leaves it running."""
    if ledger_server.cluster is None:
        pytest.skip("the ledger is given by ACKLAST_LEDGER_DSN: not ours to crash")
    return ledger_server.cluster


@pytest.fixture(scope="session")
def databases(ledger_server: LedgerServer, session_name: str) -> Iterator[Databases]:
    with Databases(ledger_server.dsn, session_name) as made:
        yield made


@pytest.fixture(scope="session")
def migrated_template(databases: Databases) -> str:
    """The name of a database with the ledger's schema."""
    from acklast.ledger.migrate import migrate

    return databases.template(migrate)


@pytest.fixture
def ledger_dsn(databases: Databases, migrated_template: str) -> Iterator[str]:
    """A fresh database with the ledger's schema."""
    dsn = databases.create(migrated_template)
    yield dsn
    databases.drop(dsn)


@pytest.fixture
def empty_dsn(databases: Databases) -> Iterator[str]:
    """A fresh database with nothing in it."""
    dsn = databases.create()
    yield dsn
    databases.drop(dsn)


@pytest.fixture
def otelcol() -> Iterator[Collector]:
    """A real collector of its own for the test."""
    with collector() as made:
        yield made
