"""The commands against a real broker and a real ledger: check, topology, ledger."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from acklast.cli.check import PARTS
from acklast.errors import Exit
from harness import Broker
from harness.command import Command


@pytest.fixture
def command(tmp_path: Path, broker: Broker, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, broker.url, ledger_dsn, capsys)


def parts(document: dict[str, Any]) -> dict[str, bool | None]:
    return {one["name"]: one["ok"] for one in document["checks"]}


# --- check -------------------------------------------------------------------------------------------


def test_a_fit_place_passes_the_check(command: Command) -> None:
    command("topology", "apply")
    done = command("check", "--json")
    assert done.exit == Exit.OK, done
    assert parts(done.document) == dict.fromkeys(PARTS, True)
    broker = next(one for one in done.document["checks"] if one["name"] == "broker")
    assert broker["detail"].startswith("RabbitMQ ")


def test_a_topology_that_is_missing_is_told_and_the_ledger_is_checked_all_the_same(command: Command) -> None:
    done = command("check", "--json")
    assert done.exit == Exit.UNFIT
    assert parts(done.document)["topology"] is False
    assert parts(done.document)["schema"] is True
    missing = next(one for one in done.document["checks"] if one["name"] == "topology")
    assert "topology apply" in missing["remedy"]


def test_a_schema_that_is_missing_is_told(command: Command, empty_dsn: str) -> None:
    command.configure(dsn=empty_dsn)
    command("topology", "apply")
    done = command("check")
    assert done.exit == Exit.UNFIT
    assert "not ok schema" in done.out
    assert "Run 'acklast ledger migrate'" in done.out


def test_a_server_that_would_lose_commits_is_told(command: Command, ledger_dsn: str) -> None:
    async def loosen() -> None:
        connection = await asyncpg.connect(ledger_dsn)
        name = await connection.fetchval("select quote_ident(current_database())")
        await connection.execute(f"alter database {name} set synchronous_commit = off")
        await connection.close()

    asyncio.run(loosen())
    command("topology", "apply")
    done = command("check", "--json")
    assert done.exit == Exit.UNFIT
    assert parts(done.document)["durability"] is False
    assert parts(done.document)["schema"] is True


def test_servers_that_do_not_answer_are_told_without_their_passwords(command: Command) -> None:
    command.configure(url="amqp://guest:s3cret@127.0.0.1:1/", dsn="postgresql://u:s3cret@127.0.0.1:1/ledger")
    done = command("check")
    assert done.exit == Exit.UNAVAILABLE
    assert "not ok broker" in done.out
    assert "-      topology" in done.out
    assert "not ok ledger" in done.out
    assert "s3cret" not in done.out + done.err


def test_a_password_that_is_wrong_is_told_and_not_shown(command: Command) -> None:
    command.configure(url=as_nobody(command.url), dsn=as_nobody(command.dsn))
    done = command("check", "--json")
    assert done.exit == Exit.CONFIG
    assert parts(done.document)["broker"] is False
    assert parts(done.document)["ledger"] is False
    assert "s3cret" not in done.out + done.err


def as_nobody(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"nobody:s3cret@{parts.netloc.rpartition('@')[2]}"))


def test_an_application_that_does_not_fit_is_a_configuration_error(command: Command) -> None:
    command.configure(app="nowhere:app")
    command("topology", "apply")
    done = command("check", "--json")
    assert done.exit == Exit.CONFIG
    assert parts(done.document)["application"] is False
    assert parts(done.document)["topology"] is True


# --- topology and ledger -----------------------------------------------------------------------------


def test_the_topology_is_made_once_and_found_after(command: Command) -> None:
    first, second = command("topology", "apply", "--json"), command("topology", "apply", "--json")
    assert (first.exit, second.exit) == (Exit.OK, Exit.OK)
    assert {"created"} <= {one["status"] for one in first.document["findings"]}
    assert {one["status"] for one in second.document["findings"]} == {"present"}
    assert second.document["ok"] is True


def test_a_queue_that_differs_is_named_with_its_remedy(command: Command, broker: Broker) -> None:
    plan = command("topology", "plan", "--offline", "--json").document
    queue = plan["queues"][1]["name"]
    body = {"durable": True, "arguments": {"x-queue-type": "classic"}}
    broker.management.call("PUT", f"queues/{broker.vhost}/{queue}", body)
    done = command("topology", "apply")
    assert done.exit == Exit.CONFIG
    assert f"differs  queue    {queue}" in done.out


def test_the_whole_plan_needs_no_server(command: Command) -> None:
    command.configure(url="amqp://127.0.0.1:1/", dsn="postgresql://127.0.0.1:1/x")
    done = command("topology", "plan", "--offline")
    assert done.exit == Exit.OK
    assert "queue    acklast.v1.cleanup.work\n           x-queue-type = quorum" in done.out
    assert "binding  acklast.v1.in -> acklast.v1.cleanup.work by cleanup.#" in done.out


def test_the_schema_is_made_once(command: Command, empty_dsn: str) -> None:
    command.configure(dsn=empty_dsn)
    first, second = command("ledger", "migrate", "--json"), command("ledger", "migrate", "--json")
    assert (first.exit, second.exit) == (Exit.OK, Exit.OK)
    assert first.document["applied"][0].startswith("0001_")
    assert json.loads(second.out) == {"applied": [], "roles": []}
    assert command("ledger", "migrate").out == "the schema is up to date\n"
