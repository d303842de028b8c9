"""The AsyncAPI document: valid by AsyncAPI's own schema, each reference leads somewhere, no secret in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

import pytest
from jsonschema_rs import Draft7Validator
from pydantic import BaseModel, Field
from typing_extensions import TypedDict
from yarl import URL

from acklast import App
from acklast.asyncapi import Place, Side, document
from acklast_topology.names import Names
from dev import npm

app = App()


class Tenant(BaseModel):
    name: Annotated[str, Field(max_length=40)]


class Reminder(BaseModel):
    tenant: Tenant
    cents: Annotated[int, Field(gt=0)]


class ByMail(BaseModel):
    by: Literal["mail"]
    to: str


class ByPost(BaseModel):
    by: Literal["post"]
    # Words of JSON Schema as the names of fields.
    discriminator: str
    prefixItems: tuple[int, str]  # noqa: N815


@dataclass
class Line:
    cents: int


class Note(TypedDict):
    text: str


class Dumb:
    """Can be read from JSON and has no schema to show."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return handler(dict)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        raise TypeError("it has none")


@app.job("rent.reminder.v1", lane="reminders")
async def remind(reminder: Reminder) -> None: ...


@app.job("rent/reminder v2", lane="reminders")
async def remind_by(way: Annotated[ByMail | ByPost, Field(discriminator="by")]) -> None: ...


@app.job("rent_reminder_v2", lane="reminders")
async def remind_line(pair: tuple[Line, Note]) -> None: ...


@app.job("note.v1", lane="notes")
async def note(payload: Note) -> None: ...


@app.job("scan.v1", lane="scans")
async def scan(body: bytes) -> None: ...


@app.job("any.v1", lane="scans")
async def anything(payload: Any) -> None: ...


@app.job("dumb.v1", lane="scans")
async def dumb(payload: Dumb) -> None: ...


LANES = ("reminders", "scans", "notes", "http-lane")
FAN_OUT = {"ended": ["notes", "scans", "http-lane"]}
GOOD = {
    "rent.reminder.v1": {"tenant": {"name": "Ada"}, "cents": 4711},
    "rent_reminder_v2": {"by": "post", "discriminator": "x", "prefixItems": [1, "a"]},
    "rent_reminder_v2_": [{"cents": 1}, {"text": "a"}],
    "any.v1": [None],
    "ended.fan-out": {"text": "a"},
}
BAD = {
    "rent.reminder.v1": {"tenant": {"name": "A" * 41}, "cents": 4711},
    "rent_reminder_v2": {"by": "post", "discriminator": "x", "prefixItems": ["a", 1]},
    "rent_reminder_v2_": [{"cents": 1}, {"text": 1}],
    "ended.fan-out": {"text": 1},
}


def made(side: Side = Side.DAEMON, *urls: str) -> dict[str, Any]:
    place = Place(Names("shop"), tuple(map(URL, urls or ["amqp://user:hunter2@rabbit/jobs?cafile=/ca.pem"])))
    lanes = {lane: [job for job in app.jobs() if job.lane == lane] for lane in LANES}
    return document(place, lanes, FAN_OUT, side=side, version="1.2.3")


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def found(reference: str, whole: Any) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        whole = whole[part]
    return whole


@cache
def asyncapi_3() -> Draft7Validator:
    place = npm.installed()
    if place is None:
        pytest.skip(
            "AsyncAPI's schemas are not here: 'make clients' installs the npm package @asyncapi/specs"
        )
    file = place / "node_modules" / "@asyncapi" / "specs" / "schemas" / "3.0.0.json"
    return Draft7Validator(json.loads(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("side", Side)
def test_it_is_valid_by_asyncapis_own_schema(side: Side) -> None:
    asyncapi_3().validate(made(side, "amqp://u:p@one:5673/jobs", "amqps://u:p@two"))


def test_asyncapis_own_schema_refuses_a_wrong_binding() -> None:
    wrong = made()
    wrong["channels"]["scans"]["bindings"]["amqp"]["exchange"]["type"] = "x-random"
    assert not asyncapi_3().is_valid(wrong)


@pytest.mark.parametrize("side", Side)
def test_every_reference_leads_somewhere(side: Side) -> None:
    whole = made(side)
    assert all(reference.startswith("#/") for reference in references(whole))
    assert all(found(reference, whole) is not None for reference in references(whole))


def test_the_daemon_receives_what_a_publisher_sends() -> None:
    daemon, publisher = made(), made(Side.PUBLISHER)
    assert {one["action"] for one in daemon["operations"].values()} == {"receive"}
    assert {one["action"] for one in publisher["operations"].values()} == {"send"}
    assert daemon["channels"] == publisher["channels"]
    for whole in (daemon, publisher):
        how = found("#/components/operationTraits/durable/bindings/amqp", whole)
        assert (how["deliveryMode"], how["mandatory"]) == (2, True)


def test_channels_are_the_lanes_on_the_ingress_exchange() -> None:
    channels = made()["channels"]
    assert set(channels) == {*LANES, *FAN_OUT}
    assert channels["scans"]["address"] == "scans"
    assert channels["scans"]["bindings"]["amqp"]["exchange"] == {
        "name": "shop.v1.in",
        "type": "topic",
        "durable": True,
        "autoDelete": False,
        "vhost": "jobs",
    }
    assert set(channels["reminders"]["messages"]) == {
        "rent.reminder.v1",
        "rent_reminder_v2",
        "rent_reminder_v2_",
    }


def test_servers_are_told_without_credentials() -> None:
    whole = made(Side.DAEMON, "amqp://user:hunter2@one:5673/a%2Fb?cafile=/secret/ca.pem", "amqps://two")
    servers = whole["servers"].values()
    told = [(server["protocol"], server["host"], server["pathname"]) for server in servers]
    assert told == [("amqp", "one:5673", "/a%2Fb"), ("amqps", "two:5671", "/%2F")]
    assert not any(secret in json.dumps(whole) for secret in ("hunter2", "user:", "secret"))


@pytest.mark.parametrize("name", GOOD)
def test_a_payloads_schema_takes_what_the_handler_takes(name: str) -> None:
    assert payload_of(name).is_valid(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_a_payloads_schema_refuses_what_the_handler_refuses(name: str) -> None:
    assert not payload_of(name).is_valid(BAD[name])


def payload_of(name: str) -> Draft7Validator:
    whole = made()
    return Draft7Validator({**whole, **whole["components"]["messages"][name]["payload"]})


@pytest.mark.parametrize(
    ("name", "told"),
    [("scan.v1", "as bytes"), ("dumb.v1", "it has none"), ("http-lane.any-type", "over HTTP")],
)
def test_a_payload_without_a_schema_says_why(name: str, told: str) -> None:
    message = made()["components"]["messages"][name]
    assert "payload" not in message
    assert told in message["description"]


def test_the_key_is_the_correlation_id_and_its_header_is_required() -> None:
    whole = made()
    trait = whole["components"]["messageTraits"]["job"]
    assert found(trait["correlationId"]["$ref"], whole)["location"] == "$message.header#/job-key"
    headers = Draft7Validator({**whole, "$ref": trait["headers"]["$ref"]})
    assert headers.is_valid({"job-key": "k-1", "deadline": "2040-01-01T00:00:00Z"})
    assert not headers.is_valid({"deadline": "2040-01-01T00:00:00Z"})
    assert not headers.is_valid({"job-key": "k-1", "deadline": "2040-01-01T00:00:00"})
