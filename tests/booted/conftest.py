"""One booted systemd for all of these tests, with the product built from this tree and its units in it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from acklast.ledger.api import JobView, State
from acklast.ledger.postgres import PostgresLedger
from acklast_topology.publish import Job, Publisher, Status
from dev.nspawn import Machine, install, machine, why_not
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
        install(made.root, TREE)
        shutil.copy(Path(__file__).with_name("handlers.py"), made.root / "etc/acklast")
        made.boot()
        made.must("systemd-sysusers")
        yield made


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
