"""The programs in the documentation, run as they stand there.

What a daemon makes of what they publish, and what they hear of a broker that returns or refuses it.
"""

from __future__ import annotations

import ast
import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import aio_pika
import asyncpg
import pytest
from aiormq import spec
from aiormq.abc import DeliveredMessage

from acklast.ledger.api import State
from acklast.ledger.postgres import PostgresLedger
from acklast_topology.declare import apply
from acklast_topology.message import PERSISTENT
from acklast_topology.plan import plan_for
from dev.rabbitmq import Node
from dev.stack import BrokerServer
from harness import Broker, Databases, eventually
from harness.broker import at_vhost
from harness.contract_documents import SCHEMA
from harness.daemon import Daemon
from harness.foreign_values import EXPECTED, PROGRAMS
from harness.reminders import LANE, TYPE
from harness.site import NAMES
from harness.snippets import CONTRACT, Ended, missing, programs, run

SPY: Final = "spy"
PROPERTIES: Final = {
    "publish.mjs": 4711,
    "publish_pika.py": 4712,
    "publish_kombu.py": 4713,
    "publish.sh": 4714,
    "publish.sql": 4715,
    "event_pika.py": 4716,
    "event.mjs": 4717,
    "event.sh": 4718,
    "Publish.java": 4719,
}
NAMED: Final = sorted(PROPERTIES)
OVER_AMQP: Final = [name for name in NAMED if not name.endswith(".sql")]
ANSWERING: Final = {"Publish.java", "publish.mjs", "publish_pika.py", "publish_kombu.py", "event.mjs"}
"""Those that print one of the four answers, whatever it is; of the others some raise, some know nothing."""
CONFIRMING: Final = [name for name in OVER_AMQP if not name.endswith(".sh")]
WITH_DEADLINE: Final = {name for name in NAMED if name.lower().startswith("publish")}
WITHOUT_TYPE: Final = {"publish.sh"}


@dataclass(frozen=True, slots=True)
class Published:
    """What became of the programs, and each message as it came to the exchange, by its property."""

    ended: dict[str, Ended]
    messages: dict[int, DeliveredMessage]
    url: str
    dsn: str


def properties(name: str, published: Published) -> dict[str, Any]:
    """Of the message as it came, by their names in AMQP; those that were left out are not there."""
    given = dict(published.messages[PROPERTIES[name]].header.properties)
    given["type"] = given.pop("message_type")
    return {name: value for name, value in given.items() if value is not None}


@pytest.fixture(scope="module")
def vhosts(broker_server: BrokerServer, session_name: str) -> Iterator[Any]:
    """Makes virtual hosts for this module; gives their addresses."""
    made: list[str] = []

    def make() -> str:
        made.append(f"{session_name}_{token_hex(4)}")
        broker_server.management.create_vhost(made[-1])
        return at_vhost(broker_server.url, made[-1])

    yield make
    for vhost in made:
        broker_server.management.delete_vhost(vhost)


@pytest.fixture(scope="module")
def published(
    vhosts: Any, databases: Databases, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Published]:
    """Every program run beside one daemon."""
    url, dsn, place = vhosts(), databases.create(migrated_template), tmp_path_factory.mktemp("published")
    config = place / "acklast.toml"
    config.write_text(
        f'app = "harness.reminders:app"\nstate_dir = "{place}/state"\n[broker]\nurl = "{url}"\n'
        f'[ledger]\ndsn = "{dsn}"\n[lanes.{LANE}]\n'
    )
    asyncio.run(_prepare(url))
    with Daemon(config, "one", env={}):
        ended = run(programs(), place, {"AMQP_URL": url, "LEDGER_DSN": dsn})
        messages = asyncio.run(_seen(url, len(ended)))
        yield Published(ended, {_property(message): message for message in messages}, url, dsn)
    databases.drop(dsn)


async def _prepare(url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        assert all(finding.fit for finding in await apply(connection, plan_for(NAMES, [LANE])))
        async with connection.channel() as channel:
            spy = await channel.declare_queue(SPY, durable=True)
            await spy.bind(NAMES.ingress, "#")


async def _seen(url: str, number: int) -> list[DeliveredMessage]:
    """What came to the exchange, the outbox's job included."""
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        # The library's own messages do not tell an absent priority from 0.
        plain = await channel.get_underlay_channel()
        seen: list[DeliveredMessage] = []

        async def all_there() -> bool:
            while isinstance((found := await plain.basic_get(SPY, no_ack=True)).delivery, spec.Basic.GetOk):
                seen.append(found)
            return len(seen) >= number

        await eventually(all_there, what=f"{number} messages at the exchange")
        return seen


def _property(message: DeliveredMessage) -> int:
    body = json.loads(message.body)
    return int(body.get("data", body)["property"])


@pytest.fixture
async def ledger(published: Published) -> AsyncIterator[PostgresLedger]:
    connected = await PostgresLedger.connect(published.dsn, pool_size=1)
    yield connected
    await connected.close()


def these(names: list[str]) -> dict[str, str]:
    """Some of the page's programs."""
    texts = programs()
    return {name: texts[name] for name in names}


def ended(name: str, programs: dict[str, Ended]) -> Ended:
    """A program's end, or why there is none."""
    if name not in programs:
        pytest.skip(f"{name} needs {missing(name)}")
    return programs[name]


def test_every_program_of_the_page_is_run() -> None:
    assert sorted(programs()) == NAMED


@pytest.mark.parametrize("name", NAMED)
async def test_the_daemon_does_the_job_as_the_program_says(
    name: str, published: Published, ledger: PostgresLedger
) -> None:
    end = ended(name, published.ended)
    assert end.code == 0, end
    key = f"2025-06:{PROPERTIES[name]}"

    async def done() -> Any:
        return next((job for job in await ledger.jobs(key, LANE) if job.state is State.DONE), None)

    job = await eventually(done, what=f"the job of {name} is done")
    assert (job.run, job.type) == ("2025-06", None if name in WITHOUT_TYPE else TYPE)
    assert job.result["payload"] == {"property": PROPERTIES[name]}
    assert (job.attempts, job.letters) == (1, ())
    if name in WITH_DEADLINE:
        assert abs(job.deadline - datetime.now(UTC) - timedelta(days=1)) < timedelta(minutes=30)
    else:
        assert job.deadline is None


@pytest.mark.parametrize("name", OVER_AMQP)
def test_the_message_is_as_the_contract_wants_it(name: str, published: Published) -> None:
    end = ended(name, published.ended)
    assert end.out == ("" if name.endswith(".sh") else "confirmed\n"), end
    given = properties(name, published)
    assert given["delivery_mode"] == PERSISTENT
    assert "priority" not in given
    headers, body = given.pop("headers"), json.loads(published.messages[PROPERTIES[name]].body)
    given |= {"timestamp": 0} if "timestamp" in given else {}
    SCHEMA.validate({"properties": given, "headers": headers, "body": body})


def test_an_extension_attribute_reaches_the_exchange_as_a_header(published: Published) -> None:
    ended("event.mjs", published.ended)
    assert properties("event.mjs", published)["headers"]["cloudEvents:partitionkey"] == "tenant-7"


@pytest.mark.parametrize("name", EXPECTED)
async def test_what_clients_make_of_values_is_read_or_refused_by_name(
    name: str, published: Published, ledger: PostgresLedger, tmp_path: Path
) -> None:
    ran = await asyncio.to_thread(run, {name: PROGRAMS[name]}, tmp_path, {"AMQP_URL": published.url})
    end = ended(name, ran)
    assert end.code == 0, end
    expected = EXPECTED[name]

    async def all_read() -> bool:
        return set(await _outcomes(ledger, published.dsn, expected)) == set(expected)

    await eventually(all_read, what=f"every message of {name} is a job or a letter")
    assert await _outcomes(ledger, published.dsn, expected) == expected


async def _outcomes(
    ledger: PostgresLedger, dsn: str, keys: Iterable[str | None]
) -> dict[str | None, dict[str, Any] | str]:
    """The reason of each letter, and what was said of each job that is done, in the shape of EXPECTED."""
    connection = await asyncpg.connect(dsn)
    try:
        letters = await connection.fetch("SELECT key, reason FROM acklast.dead_letters")
    finally:
        await connection.close()
    found: dict[str | None, dict[str, Any] | str] = {
        row["key"]: row["reason"] for row in letters if row["key"] in keys
    }
    for key in (key for key in keys if key is not None and key not in found):
        for job in await ledger.jobs(key, LANE):
            if job.state is State.DONE:
                found[key] = {
                    **({"run": job.run} if job.run else {}),
                    **({"deadline": True} if job.deadline else {}),
                    **({"published": True} if _is_now(job.published_at) else {}),
                }
    return found


def _is_now(moment: datetime | None) -> bool:
    return moment is not None and abs(moment - datetime.now(UTC)) < timedelta(minutes=30)


async def test_the_program_in_the_contract_publishes(vhosts: Any, capsys: pytest.CaptureFixture[str]) -> None:
    url, text = vhosts(), CONTRACT.read_text(encoding="utf-8")
    await _prepare(url)
    block = text.split("```python\n", 1)[1].split("```", 1)[0]
    assert "amqp://localhost/" in block
    program = compile(
        block.replace("amqp://localhost/", url), str(CONTRACT), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    await eval(program, {})
    assert capsys.readouterr().out == "confirmed\n"


@pytest.fixture(scope="module", params=["returned", "refused", "an error"])
def answer(request: pytest.FixtureRequest, vhosts: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a broker says of every message: it has no queue, the queue is full, it knows no such exchange."""
    url = vhosts()
    if request.param != "an error":
        asyncio.run(_unwilling(url, full=request.param == "refused"))
    return request.param, run(these(OVER_AMQP), tmp_path_factory.mktemp(request.param), {"AMQP_URL": url})


async def _unwilling(url: str, *, full: bool) -> None:
    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        exchange = await channel.declare_exchange(NAMES.ingress, aio_pika.ExchangeType.TOPIC, durable=True)
        if full:
            arguments: dict[str, Any] = {"x-max-length": 0, "x-overflow": "reject-publish"}
            queue = await channel.declare_queue("full", durable=True, arguments=arguments)
            await queue.bind(exchange, "#")


@pytest.mark.parametrize("name", OVER_AMQP)
def test_what_a_program_hears_of_a_broker_that_does_not_take_its_job(
    name: str, answer: tuple[str, dict[str, Ended]]
) -> None:
    word, programs = answer
    end = ended(name, programs)
    if word == "an error":
        assert (end.out, end.code) == ("", 1), (
            "what is not taken and never will be is none of the four answers"
        )
        assert "404" in end.err
    elif name in ANSWERING:
        assert (end.out, end.code) == (f"{word}\n", 1), end
    elif name.endswith(".sh"):
        assert (end.out, end.code) == ("", 0), "amqp-publish asks nobody, as the page says"
    else:
        assert end.code == 1
        assert {"returned": "UnroutableError", "refused": "NackError"}[word] in end.err


@pytest.mark.soak
def test_a_program_waits_ten_seconds_for_a_confirm_and_then_knows_nothing(
    broker: Broker, broker_node: Node, tmp_path: Path
) -> None:
    asyncio.run(_unwilling(broker.url, full=False))
    broker_node.ctl("set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        heard = run(these(CONFIRMING), tmp_path, {"AMQP_URL": broker.url})
    finally:
        broker_node.ctl("set_vm_memory_high_watermark", "absolute", "1GB")
    assert heard
    for name, end in heard.items():
        word = "unknown\n" if name in ANSWERING else ""
        assert (end.out, end.code) == (word, 1 if word else -signal.SIGALRM), (name, end)
