"""One booted systemd for all of these tests, with the product built from this tree and its units in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from acklast.ledger.api import JobView, State
from acklast.ledger.postgres import PostgresLedger
from acklast_topology.publish import Job, Publisher, Status
from dev import brokers
from dev.nspawn import PROGRAM, Machine, install, machine, why_not
from harness import Broker, eventually

TREE: Final = Path(__file__).parents[2]
SERVICE: Final = "acklast.service"
CONFIG: Final = """\
app = "handlers:app"
[broker]
url_file = "broker-url"
[ledger]
dsn_file = "ledger-dsn"
lease_s = 600
prune_every_s = "off"
[drain]
deadline_s = 60
[log]
level = "info"
[lanes.work]
concurrency = 2
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("booted")


@pytest.fixture(scope="session")
def booted() -> Iterator[Machine]:
    """The container."""
    if why := why_not():
        pytest.skip(why)
    with machine() as made:
        yield _with_the_product(made)


@pytest.fixture(scope="session")
def newer() -> Iterator[Machine]:
    """Another container, with a systemd that knows ``Type=notify-reload`` (253), of the root directory of a
    newer broker."""
    if why := why_not():
        pytest.skip(why)
    with machine(_newer_system()) as made:
        yield _with_the_product(made)


def _newer_system() -> Path:
    for suite in brokers.SUITES:
        root = brokers.place() / suite
        found = next(root.glob("usr/lib/*/systemd/libsystemd-shared-*.so"), None)
        if found and (root / "usr/lib/systemd/systemd").exists():
            return root
    pytest.skip(f"no newer systemd below {brokers.place()}: make test-brokers builds one")


def _with_the_product(made: Machine) -> Machine:
    install(made.root, TREE)
    shutil.copy(Path(__file__).with_name("handlers.py"), made.root / "etc/acklast")
    made.boot()
    made.must("systemd-sysusers")
    return made


@dataclass
class Host:
    """The container with servers and a configuration of one test's own."""

    machine: Machine
    broker: Broker
    ledger: PostgresLedger

    @property
    def etc(self) -> Path:
        return self.machine.root / "etc/acklast"

    @property
    def state(self) -> Path:
        """The state directory of ``acklast.service``."""
        return self.machine.root / "var/lib/acklast"

    def configure(self, **secrets: str) -> None:
        """The configuration, and the files with the secrets, as nobody but root may read them."""
        (self.etc / "acklast.toml").write_text(CONFIG)
        for name, secret in secrets.items():
            (self.etc / name.replace("_", "-")).write_text(secret)
        self.machine.must("systemd-tmpfiles", "--create", "acklast.conf")

    def drop_in(self, text: str, unit: str = SERVICE) -> None:
        """Settings beside those of the unit, for this test."""
        section = "Timer" if unit.endswith(".timer") else "Service"
        directory = self.machine.root / f"etc/systemd/system/{unit}.d"
        directory.mkdir()
        (directory / "test.conf").write_text(f"[{section}]\n{text}\n")
        self.machine.must("systemctl", "daemon-reload")

    def systemctl(self, *arguments: str, timeout_s: float = 120) -> int:
        """Its exit code."""
        return self.machine.run("systemctl", *arguments, timeout_s=timeout_s).returncode

    def acklast(self, *arguments: str) -> Any:
        """What a command of the product answers to root in there."""
        config = "/etc/acklast/acklast.toml"
        said = self.machine.must(f"{PROGRAM}/bin/acklast", *arguments, "--json", "--config", config)
        return json.loads(said)

    def start(self, unit: str = SERVICE) -> None:
        """Start a unit: it is ready when this returns."""
        self.machine.must("systemctl", "start", unit)

    def is_(self, unit: str = SERVICE, **properties: str) -> bool:
        """Whether a unit's properties are these."""
        return all(self.shown(unit)[name] == value for name, value in properties.items())

    def shown(self, unit: str = SERVICE) -> Mapping[str, str]:
        return self.machine.show(unit)

    def said(self, event: str, unit: str = SERVICE) -> list[dict[str, Any]]:
        """The journal's entries for an event."""
        return [entry for entry in self.machine.journal(unit) if entry.get("ACKLAST_EVENT") == event]

    def open_gate(self, name: str) -> None:
        (self.state / name).touch()

    async def publish(self, key: str, type_: str = "step.v1", **payload: Any) -> None:
        async with Publisher.connect(self.broker.url) as publisher:
            async for result in publisher.publish_many([Job.json("work", key, payload, type=type_)]):
                assert result.status is Status.CONFIRMED, result

    async def started(self, key: str) -> None:
        """Wait until a handler has begun with the job."""
        await eventually((self.state / f"{key}.first").exists, what=f"{key} is at work")

    async def done(self, key: str, timeout_s: float = 60) -> JobView:
        async def view() -> JobView | None:
            views = await self.ledger.jobs(key, "work")
            return next((one for one in views if one.state is State.DONE), None)

        found = await eventually(view, timeout_s, f"{key} is done")
        assert isinstance(found, JobView)
        return found


UNITS: Final = (SERVICE, "acklast@mail.service", "acklast-relay.service", "acklast-scheduler.service")
TIMED: Final = ("acklast-prune.timer", "acklast-prune.service")


@pytest.fixture
async def host(booted: Machine, broker: Broker, ledger_dsn: str) -> AsyncIterator[Host]:
    """The container, as nobody has used it."""
    async with _fresh(booted, broker, ledger_dsn) as made:
        yield made


@pytest.fixture
async def newer_host(newer: Machine, broker: Broker, ledger_dsn: str) -> AsyncIterator[Host]:
    """The container with a newer systemd, as nobody has used it."""
    async with _fresh(newer, broker, ledger_dsn) as made:
        yield made


@asynccontextmanager
async def _fresh(booted: Machine, broker: Broker, ledger_dsn: str) -> AsyncIterator[Host]:
    """Everything stopped, nothing left over, and a virtual host and a database that nobody has used."""
    ledger = await PostgresLedger.connect(ledger_dsn, pool_size=1)
    made = Host(booted, broker, ledger)
    made.configure(broker_url=broker.url, ledger_dsn=ledger_dsn)
    booted.must("journalctl", "--rotate", "--vacuum-time=1s")
    try:
        yield made
    finally:
        await ledger.close()
        for unit in (*UNITS, *TIMED):
            booted.run("systemctl", "kill", "-s", "KILL", unit)
            booted.run("systemctl", "stop", unit)
        booted.run("sh", "-c", "rm -rf /etc/systemd/system/acklast*.d /var/lib/acklast /etc/acklast/*.toml")
        booted.must("systemctl", "daemon-reload")
        booted.run("systemctl", "reset-failed")
