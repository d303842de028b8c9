"""The lanes as an AsyncAPI 3.0 document, for whoever writes a publisher or generates one. Pure.

AsyncAPI describes one application, and its operations are that application's own: the daemon *receives* what
a publisher *sends*. So there is a document for each of the two, of the same channels and messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from yarl import URL

from acklast.handlers.app import JobType
from acklast.handlers.payload_schema import Payload, payload_schemas
from acklast_topology import contract_schema
from acklast_topology.message import JSON, KEY_HEADER, PERSISTENT
from acklast_topology.names import VERSION, Names

Document = dict[str, Any]

_BINDING: Final = {"bindingVersion": "0.3.0"}
_SCHEMAS: Final = "#/components/schemas/"
_OURS: Final = "acklast."
"""Before the names of the contract's own schemas, so that no payload type's name is one of them."""
_UNFIT: Final = re.compile(r"[^A-Za-z0-9._-]")
_PORTS: Final = {"amqp": 5672, "amqps": 5671}


class Side(StrEnum):
    """Whose document it is."""

    DAEMON = "daemon"
    PUBLISHER = "publisher"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the lanes are: the namespace, and the broker's addresses, of which no credentials are shown."""

    names: Names
    urls: tuple[URL, ...]


def document(
    place: Place,
    lanes: Mapping[str, Iterable[JobType]],
    fan_outs: Mapping[str, Sequence[str]],
    *,
    side: Side,
    version: str,
) -> Document:
    """The whole document. ``version`` is the program's.

    ``lanes`` has the job types of each lane; of one without any, every type goes into the lane's request.
    ``fan_outs`` has names that stand for several lanes each.

    Raises:
        ConfigError: a payload type names something that was never defined.
    """
    jobs = {lane: tuple(jobs) for lane, jobs in lanes.items()}
    every = [job for of_lane in jobs.values() for job in of_lane]
    payloads, shared = payload_schemas(every, f"{_SCHEMAS}{{model}}")
    ids = _ids(every)
    messages = {lane: [ids[job.name] for job in of_lane] or [_any(lane)] for lane, of_lane in jobs.items()}
    messages |= {name: [_shared(name)] for name in fan_outs}
    servers = {f"broker-{number}": _server(url) for number, url in enumerate(place.urls, 1)}
    return {
        "asyncapi": "3.0.0",
        "id": f"urn:acklast:{place.names.ns}:{VERSION}:{side}",
        "info": _info(place.names, side, version),
        "servers": servers,
        "channels": {lane: _channel(place, lane, found) for lane, found in messages.items()},
        "operations": dict(_operation(lane, found, side) for lane, found in messages.items()),
        "components": {
            "messages": {
                **{ids[job.name]: _message(job, payloads[job.name]) for job in every},
                **{_any(lane): _any_message(lane) for lane, of_lane in jobs.items() if not of_lane},
                **{_shared(name): _shared_message(name, to, jobs, payloads) for name, to in fan_outs.items()},
            },
            "messageTraits": {"job": _trait()},
            "operationTraits": {"durable": {"bindings": {"amqp": _durable(side)}}},
            "correlationIds": {"key": _correlation()},
            "securitySchemes": {"login": {"type": "userPassword", "description": "A user of the broker."}},
            "schemas": {**shared, **_contract()},
        },
    }


def _info(names: Names, side: Side, version: str) -> Document:
    whose = "What acklast takes" if side is Side.DAEMON else "What a publisher sends to acklast"
    return {
        "title": f"{whose} in the namespace {names.ns}",
        "version": version,
        "description": (
            "Jobs by acklast's contract, version 1. Publish persistent and mandatory, with publisher"
            " confirms, and wait for the confirm with a time limit; where none comes, publish again under the"
            " same key. CloudEvents 1.0 are read in structured and in binary mode too."
        ),
    }


def _server(url: URL) -> Document:
    port = url.port or _PORTS.get(url.scheme)
    return {
        "host": f"{url.host}:{port}",
        "protocol": url.scheme,
        "protocolVersion": "0-9-1",
        "pathname": url.raw_path if url.raw_path != "/" else "/%2F",
        "security": [{"$ref": "#/components/securitySchemes/login"}],
    }


def _channel(place: Place, lane: str, messages: list[str]) -> Document:
    vhost = next((url.path.removeprefix("/") for url in place.urls), "") or "/"
    exchange = {
        "name": place.names.ingress,
        "type": "topic",
        "durable": True,
        "autoDelete": False,
        "vhost": vhost,
    }
    return {
        "address": lane,
        "description": (
            f"The routing key is {lane}, or {lane} and a dot and anything, for your own bindings."
        ),
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {"amqp": {"is": "routingKey", "exchange": exchange, **_BINDING}},
    }


def _operation(lane: str, messages: list[str], side: Side) -> tuple[str, Document]:
    action = "receive" if side is Side.DAEMON else "send"
    return f"{action}.{lane}", {
        "action": action,
        "channel": {"$ref": f"#/channels/{lane}"},
        "messages": [{"$ref": f"#/channels/{lane}/messages/{name}"} for name in messages],
        "traits": [{"$ref": "#/components/operationTraits/durable"}],
    }


def _durable(side: Side) -> Document:
    """How the messages are sent, and that the daemon acks them."""
    acked = {"ack": True} if side is Side.DAEMON else {}
    return {"deliveryMode": PERSISTENT, "mandatory": True, **acked, **_BINDING}


def _message(job: JobType, payload: Payload) -> Document:
    return {
        "name": job.name,
        **({"contentType": JSON} if payload.json else {}),
        **({"description": payload.note} if payload.note else {}),
        **({} if payload.schema is None else {"payload": payload.schema}),
        "traits": [{"$ref": "#/components/messageTraits/job"}],
        "bindings": {"amqp": {"messageType": job.name, **_BINDING}},
    }


def _any(lane: str) -> str:
    """The name of the message of a lane that takes every type; no job type's name has it."""
    return f"{lane}.any-type"


def _any_message(lane: str) -> Document:
    return {
        "name": lane,
        "description": "The lane sends each job over HTTP by its request template: any type, no schema.",
        "traits": [{"$ref": "#/components/messageTraits/job"}],
    }


def _shared(name: str) -> str:
    """The name of the message of a fan-out; no job type's name has it."""
    return f"{name}.fan-out"


def _shared_message(
    name: str,
    lanes: Sequence[str],
    jobs: Mapping[str, Sequence[JobType]],
    payloads: Mapping[str, Payload],
) -> Document:
    """What every lane of a fan-out takes: a payload that suits the only handler of each that has one."""
    asked = [payloads[jobs[lane][0].name] for lane in lanes if len(jobs[lane]) == 1]
    schemas = [payload.schema for payload in asked if payload.schema is not None]
    return {
        "name": name,
        "description": (
            f"Becomes a job of its own in each of the lanes {', '.join(lanes)}. Leave the type out,"
            " unless each of them has a handler for it."
        ),
        **({"contentType": JSON} if any(payload.json for payload in asked) else {}),
        **({"payload": {"allOf": schemas}} if schemas else {}),
        "traits": [{"$ref": "#/components/messageTraits/job"}],
    }


def _trait() -> Document:
    return {
        "headers": {"$ref": f"{_SCHEMAS}{_OURS}headers"},
        "correlationId": {"$ref": "#/components/correlationIds/key"},
    }


def _correlation() -> Document:
    return {
        "description": "The job's key: the same at every attempt and every repeat.",
        "location": f"$message.header#/{KEY_HEADER}",
    }


def _contract() -> Document:
    """The contract's own schemas. Here the key's header is required: a document cannot name message_id."""
    made = {f"{_OURS}{name}": schema for name, schema in contract_schema.definitions().items()}
    headers = contract_schema.headers_schema(f"{_SCHEMAS}{_OURS}")
    return {**made, f"{_OURS}headers": {**headers, "required": [KEY_HEADER]}}


def _ids(jobs: Iterable[JobType]) -> dict[str, str]:
    """A name for each job type's message that may stand in a reference; two never share one."""
    ids: dict[str, str] = {}
    for job in jobs:
        name = _UNFIT.sub("_", job.name)
        while name in ids.values() or name.endswith((".any-type", ".fan-out")):
            name += "_"
        ids[job.name] = name
    return ids
