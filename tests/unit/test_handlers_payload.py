"""The payload by annotation: what reaches the handler, and what a refusal says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator
from typing_extensions import TypedDict

from acklast import App
from acklast.errors import ConfigError
from acklast.handlers.payload import InvalidPayload, decoder_for, is_json
from acklast.handlers.signature import payload_annotation
from acklast.outcome import Permanent
from harness.jobs import envelope, outcome_of

SECRET = "hunter2"


class Rent(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tenancy: str = Field(pattern=r"^T-\d+$")
    due: date
    cents: Annotated[int, Field(gt=0)]
    lines: list[int] = []


@dataclass
class Line:
    cents: int


class Note(TypedDict):
    text: str


class Tree(BaseModel):
    leaf: str = ""
    branches: dict[str, Tree] = {}


class Strict(BaseModel):
    word: str

    @field_validator("word")
    @classmethod
    def _word(cls, word: str) -> str:
        if word == "bug":
            raise KeyError(word)
        raise ValueError(f"{word} is no word")


def read(annotation: Any, body: bytes, content_type: str = "application/json") -> Any:
    return decoder_for(annotation, "handler")(envelope(body, content_type=content_type))


def refusal(annotation: Any, body: bytes, content_type: str = "application/json") -> str:
    with pytest.raises(InvalidPayload) as caught:
        read(annotation, body, content_type)
    return caught.value.detail


@pytest.mark.parametrize(
    ("annotation", "body", "payload"),
    [
        (
            Rent,
            b'{"tenancy": "T-1", "due": "2026-01-31", "cents": "12"}',
            Rent(tenancy="T-1", due=date(2026, 1, 31), cents=12),
        ),
        (Line, b'{"cents": 12}', Line(12)),
        (Note, b'{"text": "x"}', {"text": "x"}),
        (dict, b'{"a": [1, null]}', {"a": [1, None]}),
        (dict[str, int], b'{"a": 1}', {"a": 1}),
        (list[Line], b'[{"cents": 1}]', [Line(1)]),
        (str, b'"x"', "x"),
        (int | None, b"null", None),
        (Any, b'{"a": 1}', {"a": 1}),
        (bytes, b"\xff\x00", b"\xff\x00"),
    ],
)
def test_a_payload_is_made_as_annotated(annotation: Any, body: bytes, payload: Any) -> None:
    assert read(annotation, body) == payload


def test_a_handler_without_an_annotation_gets_json() -> None:
    assert payload_annotation(lambda payload: None) is Any


@pytest.mark.parametrize("content_type", ["application/octet-stream", "text/csv", "", "image/png"])
def test_bytes_come_untouched_whatever_the_content_type(content_type: str) -> None:
    assert read(bytes, b"{", content_type) == b"{"


@pytest.mark.parametrize(
    ("content_type", "json"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/vnd.rent+json", True),
        ("application/cloudevents+json;v=1", True),
        ("text/json", False),
        ("text/plain", False),
        ("application/jsonx", False),
        ("image/svg+json", False),
        ("", False),
    ],
)
def test_other_payloads_need_a_json_content_type(content_type: str, json: bool) -> None:
    assert is_json(content_type) is json
    if json:
        assert read(dict, b"{}", content_type) == {}
    else:
        assert "is not JSON" in refusal(dict, b"{}", content_type)


# --- refusals ----------------------------------------------------------------------------------------


def test_a_refusal_names_paths_and_error_types_only() -> None:
    body = b'{"tenancy": "hunter2", "due": "hunter2", "cents": -1, "lines": [1, "hunter2"]}'
    assert refusal(Rent, body) == (
        "tenancy: string_pattern_mismatch; due: date_from_datetime_parsing; "
        "cents: greater_than; lines.1: int_parsing"
    )


@pytest.mark.parametrize(
    ("annotation", "body", "detail"),
    [
        (Rent, b'{"tenancy": "T-1", "due": "2026-01-31", "cents": 1, "hunter2": 1}', "*: extra_forbidden"),
        (dict[str, int], b'{"hunter2": "x"}', "*: int_parsing"),
        (Tree, b'{"branches": {"hunter2": {"leaf": 1}}}', "branches.*.leaf: string_type"),
        (Strict, b'{"word": "hunter2"}', "word: value_error"),
        (Strict, b'{"word": "bug"}', "a validator raised KeyError"),
        (Literal["a"], b'"hunter2"', "payload: literal_error"),
        (dict, b"{hunter2", "payload: json_invalid"),
        (dict, b"\xff", "payload: json_invalid"),
        (dict, b"", "payload: json_invalid"),
        (dict, b"[" * 100_000, "payload: json_invalid"),
    ],
)
def test_a_refusal_holds_nothing_of_the_payload(annotation: Any, body: bytes, detail: str) -> None:
    assert refusal(annotation, body) == detail


def test_a_refusal_is_short_however_much_is_wrong() -> None:
    detail = refusal(list[int], b"[" + b",".join([b'"x"'] * 5000) + b"]")
    assert detail == "; ".join(f"{n}: int_parsing" for n in range(5)) + "; and 4995 more"
    deep = b'{"branches": {"x": ' * 60 + b'{"leaf": 1}' + b"}}" * 60
    assert len(refusal(Tree, deep)) == 300


@given(st.text(min_size=8, alphabet=st.characters(categories=["L", "N"])).map(lambda s: "~" + s + "~"))
def test_no_text_of_the_payload_comes_back(secret: str) -> None:
    model = RootModel[dict[str, Rent]]
    body = model.model_construct({secret: Rent.model_construct(tenancy=secret, due=secret, cents=secret)})
    assert secret not in refusal(model, body.model_dump_json(warnings=False).encode())


async def test_an_invalid_payload_is_permanent_and_the_handler_does_not_start() -> None:
    started: list[Rent] = []

    async def handler(payload: Rent) -> None:
        started.append(payload)

    handler.__annotations__["payload"] = Rent
    assert await outcome_of(handler, envelope(b"{}")) == Permanent(
        "invalid_payload", "tenancy: missing; due: missing; cents: missing"
    )
    assert started == []


# --- types that cannot work --------------------------------------------------------------------------


class Opaque:
    pass


def opaque(payload: Opaque) -> None: ...


def test_a_type_that_json_cannot_make_is_refused_at_import() -> None:
    with pytest.raises(TypeError, match=r"opaque: no payload of type .*Opaque.* can be made from JSON"):
        App().job("a.v1", lane="a")(opaque)


class Unfinished(BaseModel):
    later: NeverDefined  # type: ignore[name-defined]  # noqa: F821


def unfinished(payload: Unfinished) -> None: ...


def test_a_type_that_is_never_finished_stops_the_daemon_not_the_jobs() -> None:
    app = App()
    app.job("a.v1", lane="a")(unfinished)
    with pytest.raises(ConfigError, match=r"payload type of unfinished is not complete .*NeverDefined"):
        app.prepare({"a": 1})
