"""What a job type's payload is, as a JSON Schema, where its type can say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import TypeAdapter

from acklast.handlers.app import JobType
from acklast.handlers.payload import JsonPayload, takes_body
from acklast.handlers.signature import name_of

Schema: TypeAlias = dict[str, Any]

_MODE: Final = "validation"
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "dependentSchemas"})
"""Keywords whose value has schemas by name."""
_VALUES: Final = frozenset({"const", "enum", "default", "examples", "required"})
"""Keywords whose value is no schema, whatever it looks like."""


@dataclass(frozen=True, slots=True)
class Payload:
    """``schema`` is None where there is none to give; ``note`` then says why, for people."""

    schema: Schema | None
    note: str = ""
    json: bool = True
    """Whether the body must be JSON."""


def payload_schema(job: JobType) -> Payload:
    """A job type's payload as JSON Schema 2020-12, complete in itself.

    Raises:
        ConfigError: the payload type names something that was never defined.
    """
    if takes_body(job.decode):
        return Payload(
            None, "The handler takes the body as bytes, of any content type: no schema.", json=False
        )
    if not isinstance(job.decode, JsonPayload):
        return Payload(None, "What the job takes is its own matter: no schema.", json=False)
    job.decode.finish(name_of(job.handler.call))
    try:
        return Payload(job.decode.adapter.json_schema(mode=_MODE))
    except Exception as error:  # of a type's own hooks too
        why = str(error).splitlines()[0]
        return Payload(None, f"The payload is JSON, and its type has no JSON Schema ({why}).")


def payload_schemas(jobs: Iterable[JobType], ref_template: str) -> tuple[dict[str, Payload], Schema]:
    """The payloads of several job types, by type, and what their schemas refer to by ``ref_template``.

    In draft 7, which AsyncAPI's schemas are made of.
    """
    payloads = {job.name: payload_schema(job) for job in jobs}
    adapters: list[tuple[str, Any, TypeAdapter[Any]]] = [
        (job.name, _MODE, job.decode.adapter)
        for job in jobs
        if isinstance(job.decode, JsonPayload) and payloads[job.name].schema is not None
    ]
    if not adapters:
        return payloads, {}
    found, shared = TypeAdapter.json_schemas(adapters, ref_template=ref_template)
    payloads |= {name: Payload(draft_7(schema)) for (name, _), schema in found.items()}
    return payloads, {name: draft_7(schema) for name, schema in shared.get("$defs", {}).items()}


def draft_7(schema: Any) -> Any:
    """A schema of 2020-12, as pydantic makes them, in the words of draft 7.

    A discriminator is left out: AsyncAPI means another thing by that word, and the alternatives stay.
    """
    if isinstance(schema, list):
        return [draft_7(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: _converted(key, value) for key, value in schema.items() if key != "discriminator"}
    if "prefixItems" in made:
        more = made.pop("items", None)
        made["items"] = made.pop("prefixItems")
        made |= {} if more is None else {"additionalItems": more}
    return made


def _converted(keyword: str, value: Any) -> Any:
    if keyword in _VALUES:
        return value
    if keyword in _NAMED:
        return {name: draft_7(schema) for name, schema in value.items()}
    return draft_7(value)
