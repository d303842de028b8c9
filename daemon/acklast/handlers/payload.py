"""From a message's bytes to what the handler's annotation asks for.

The validator is built once per job type. What a failed validation says names field paths and error types
only: the payload itself may be private, and dead letters' details are logged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from acklast.errors import ConfigError
from acklast.handlers.failure import clipped, exception_name
from acklast_topology.contract import Envelope

Decode: TypeAlias = Callable[[Envelope], Any]

_DETAIL_CHARS: Final = 300
_ERRORS_SHOWN: Final = 5
_ERROR_TYPE: Final = re.compile(r"[^a-z0-9_]+")


class InvalidPayload(Exception):  # noqa: N818 - named for what is true, not for being an error
    """The body is not what the handler takes. ``detail`` is bounded and holds no value of the payload."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = clipped(detail, _DETAIL_CHARS)


def decoder_for(annotation: Any, name: str) -> Decode:
    """How to read the payload of the handler called ``name``. ``bytes`` gets the body untouched.

    Raises:
        TypeError: nothing of this type can be made from JSON.
    """
    if annotation is bytes:
        return _body
    try:
        return JsonPayload(TypeAdapter(annotation))
    except (PydanticUserError, TypeError) as error:
        why = str(error).splitlines()[0]
        raise TypeError(
            f"{name}: no payload of type {annotation!r} can be made from JSON ({why}). "
            f"Use a pydantic model, a dataclass, dict, bytes, or a TypedDict "
            f"(typing_extensions' one before Python 3.12)"
        ) from error


def takes_body(decode: Decode) -> bool:
    """Whether the handler takes the body as bytes, whatever they are."""
    return decode is _body


def is_json(content_type: str) -> bool:
    """Whether a content type, parameters and all, says JSON."""
    essence = content_type.partition(";")[0].strip().lower()
    return essence == "application/json" or (essence.startswith("application/") and essence.endswith("+json"))


def _body(envelope: Envelope) -> bytes:
    return envelope.body


@dataclass(slots=True)
class JsonPayload:
    """Validates a JSON body against one type."""

    adapter: TypeAdapter[Any]
    _names: frozenset[str] | None = field(default=None, init=False)

    def __call__(self, envelope: Envelope) -> Any:
        """The payload; raises ``InvalidPayload``."""
        if envelope.content_type != "application/json" and not is_json(envelope.content_type):
            raise InvalidPayload(f"content type {envelope.content_type[:80]!r} is not JSON")
        try:
            return self.adapter.validate_json(envelope.body)
        except ValidationError as error:
            raise InvalidPayload(self._detail(error)) from None
        except Exception as error:
            # A validator of the payload type broke. It would break again on every attempt.
            raise InvalidPayload(f"a validator raised {exception_name(error)}") from None

    def finish(self, name: str) -> None:
        """Resolve what the type left open (a model that names a later one).

        Raises:
            ConfigError: it never was defined.
        """
        try:
            self.adapter.rebuild(raise_errors=True)
        except Exception as error:
            why = str(error).splitlines()[0]
            raise ConfigError(
                f"The payload type of {name} is not complete ({why})",
                "Define or import what it names in its own module",
            ) from error

    def _detail(self, error: ValidationError) -> str:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        shown = [f"{self._path(p['loc'])}: {_error_type(p['type'])}" for p in problems[:_ERRORS_SHOWN]]
        more = len(problems) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more else "")

    def _path(self, loc: tuple[int | str, ...]) -> str:
        """A field path. A name that the type does not know came with the payload, so it is not shown."""
        return ".".join(str(p) if isinstance(p, int) or p in self._known() else "*" for p in loc) or "payload"

    def _known(self) -> frozenset[str]:
        if self._names is None:
            self._names = _names_of(self.adapter)
        return self._names


def _error_type(code: str) -> str:
    return _ERROR_TYPE.sub("_", code.lower())[:60]


def _names_of(adapter: TypeAdapter[Any]) -> frozenset[str]:
    """The field and model names that a type declares; none where it has no JSON schema."""
    try:
        return frozenset(_declared(adapter.json_schema()))
    except Exception:
        return frozenset()


def _declared(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _declared(item)
    elif isinstance(schema, Mapping):
        for key, value in schema.items():
            if key in ("properties", "$defs") and isinstance(value, Mapping):
                yield from value
            yield from _declared(value)
