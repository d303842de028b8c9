"""One request as a template of its job: pure, and the same on every attempt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from acklast.http.templates import (
    BadTemplate,
    Json,
    Text,
    Unrenderable,
    Url,
    Values,
    fields_named,
    secrets_named,
)
from acklast_topology.contract import JSON, Envelope

_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_TEXT_TYPE: Final = "text/plain; charset=utf-8"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

Body: TypeAlias = Callable[[Envelope, Values], tuple[bytes, str]]
"""From a job to the request's body and its content type."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent. ``repr`` leaves out what may be secret."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """A method, a URL, headers and a body. Made by ``of``; ``render`` fills it from a job."""

    lane: str
    method: str
    url: Url
    headers: tuple[tuple[str, Text], ...]
    body: Body | None
    named: frozenset[str]
    """The fields that the templates name: no other is worked out."""
    secrets: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(
        cls,
        lane: str,
        *,
        method: str,
        url: str,
        headers: Mapping[str, str] = _NOTHING,
        json_body: Any = None,
        text_body: str | None = None,
        secrets: Mapping[str, str] = _NOTHING,
    ) -> RequestTemplate:
        """Compile every part.

        Raises:
            BadTemplate: of the first part that is wrong. ``problems`` finds them all.
        """
        for _, why in problems(url, headers, json_body, text_body, secrets):
            raise BadTemplate(why)
        return cls(
            lane=lane,
            method=method,
            url=Url.of("url", url),
            headers=tuple((name, Text.of(f"headers.{name}", text)) for name, text in headers.items()),
            body=_body_of(method, json_body, text_body),
            named=frozenset().union(*map(fields_named, _texts(url, headers, json_body, text_body))),
            secrets=secrets,
        )

    def render(self, envelope: Envelope) -> Request:
        """The request for a job.

        Raises:
            Unrenderable: the job has not what the templates ask for.
        """
        values = _values(self.lane, envelope, self.secrets, self.named)
        headers = {name: text.header(values) for name, text in self.headers}
        body = None
        if self.body is not None:
            body, content_type = self.body(envelope, values)
            if not any(name.lower() == "content-type" for name in headers):
                headers["Content-Type"] = content_type
        return Request(self.method, self.url.render(values), headers, body)


def problems(
    url: str, headers: Mapping[str, str], json_body: Any, text_body: str | None, secrets: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Everything wrong with a request's templates: the key (``headers.Accept``) and a sentence."""
    made: list[tuple[str, Callable[[str, Any], object], Any]]
    made = [("url", Url.of, url), *((f"headers.{name}", Text.of, text) for name, text in headers.items())]
    made += [("body", Text.of, text_body)] if text_body is not None else []
    made += [("json", Json.of, json_body)] if json_body is not None else []
    for place, make, given in made:
        if why := _wrong(make, place, given):
            yield place, why
        for name in sorted(set().union(*map(secrets_named, _leaves(given))) - secrets.keys()):
            yield place, f"names secrets.{name}, which the table secrets has not"


def _texts(url: str, headers: Mapping[str, str], json_body: Any, text_body: str | None) -> Iterator[str]:
    return _leaves([url, *headers.values(), json_body, text_body])


def _wrong(make: Callable[[str, Any], object], place: str, given: Any) -> str:
    try:
        make(place, given)
    except BadTemplate as error:
        return str(error)
    return ""


def _leaves(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for item in value.values():
                yield from _leaves(item)
        case list() | tuple():
            for item in value:
                yield from _leaves(item)


# --- the body ----------------------------------------------------------------------------------------


def _body_of(method: str, json_body: Any, text_body: str | None) -> Body | None:
    """The body's template; without one the methods that carry a body send the job's own, as it came."""
    if json_body is not None:
        return _json_body(Json.of("json", json_body))
    if text_body is not None:
        return _text_body(Text.of("body", text_body)) if text_body else None
    return _own_body if method in _WITH_BODY else None


def _json_body(template: Json) -> Body:
    def body(envelope: Envelope, values: Values) -> tuple[bytes, str]:
        try:
            text = json.dumps(template.render(values), allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError):
            raise Unrenderable("json: a value that JSON has not") from None
        return text.encode(), JSON

    return body


def _text_body(template: Text) -> Body:
    def body(envelope: Envelope, values: Values) -> tuple[bytes, str]:
        try:
            return template.render(values).encode(), _TEXT_TYPE
        except UnicodeEncodeError:
            raise Unrenderable("body: half a surrogate pair") from None

    return body


def _own_body(envelope: Envelope, values: Values) -> tuple[bytes, str]:
    return envelope.body, envelope.content_type


# --- what templates see ------------------------------------------------------------------------------


def _values(lane: str, envelope: Envelope, secrets: Mapping[str, str], named: frozenset[str]) -> Values:
    """What the templates are filled with. The body is read only as what a template names it."""
    values = {
        "key": envelope.key,
        "lane": lane,
        "type": envelope.type,
        "run": envelope.run,
        "deadline": envelope.deadline,
        "headers": envelope.raw.headers,
        "secrets": secrets,
    }
    if "payload" in named:
        values["payload"] = _payload(envelope.body)
    if "body" in named:
        values["body"] = _body_text(envelope.body)
    return values


def _payload(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise Unrenderable("payload: the body is not JSON") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _body_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise Unrenderable("body: the body is not UTF-8") from None
