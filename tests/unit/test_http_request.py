"""A request as a template of its job: what is put in is made fit for its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.http.request import Request, RequestTemplate, problems
from acklast.http.templates import BadTemplate, Unrenderable
from acklast_topology.contract import Envelope, RawMessage

HOST = "https://api.example"
WHEN = datetime(2026, 7, 31, 9, 30, tzinfo=UTC)


def job(payload: Any = None, *, key: str = "run-1:T-7", raw: bytes | None = None, **more: Any) -> Envelope:
    body = raw if raw is not None else json.dumps(payload if payload is not None else {}).encode()
    message = RawMessage(body=body, headers=more.pop("headers", {}))
    given = {"type": "rent.reminder.v1", "run": "run-1", "deadline": None, **more}
    return Envelope(
        key=key,
        body=body,
        content_type="application/json",
        fingerprint=b"",
        not_before=None,
        published_at=None,
        raw=message,
        **given,
    )


def rendered(envelope: Envelope, *, url: str = HOST, method: str = "POST", **parts: Any) -> Request:
    return RequestTemplate.of("reminders", method=method, url=url, **parts).render(envelope)


def url_of(template: str, payload: Any = None, **more: Any) -> str:
    return rendered(job(payload, **more), url=HOST + template, method="GET").url.removeprefix(HOST)


def refusal(envelope: Envelope, **parts: Any) -> str:
    with pytest.raises(Unrenderable) as caught:
        rendered(envelope, **parts)
    return caught.value.detail


# --- the URL -------------------------------------------------------------------------------------------


def test_values_in_a_url_are_percent_encoded() -> None:
    payload = {"id": "a/b ?&#%é", "n": 7, "yes": True}
    assert url_of("/x/{{ payload.id }}?n={{ payload.n }}&y={{ payload.yes }}", payload) == (
        "/x/a%2Fb%20%3F%26%23%25%C3%A9?n=7&y=true"
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_no_value_can_leave_its_segment(value: str) -> None:
    try:
        url = rendered(job({"id": value}), url=f"{HOST}/orders/{{{{ payload.id }}}}/cancel?q=1").url
    except Unrenderable as refused:
        assert value in (".", "..")
        assert "dot segment" in refused.detail  # noqa: PT017 - only of these two
        return
    parts = urlsplit(url)
    assert (parts.netloc, parts.query, parts.fragment) == ("api.example", "q=1", "")
    assert [unquote(segment) for segment in parts.path.split("/")] == ["", "orders", value, "cancel"]


def test_an_empty_value_is_refused_in_the_path_and_not_in_the_query() -> None:
    assert url_of("/x?q={{ payload.q }}", {"q": ""}) == "/x?q="
    assert refusal(job({"id": ""}), url=HOST + "/{{ payload.id }}") == "url: a value in the path is empty"


def test_the_filter_path_keeps_slashes_and_nothing_else() -> None:
    assert url_of("/files/{{ payload.at | path }}", {"at": "a/b c/d?"}) == "/files/a/b%20c/d%3F"
    assert "dot segment" in refusal(job({"at": "../x"}), url=HOST + "/f/{{ payload.at | path }}")


@pytest.mark.parametrize(
    "url",
    [
        "/orders",
        "orders",
        "ftp://api.example/",
        "{{ payload.url }}",
        "https://{{ payload.host }}/x",
        "https://api.example{{ key }}",
        "https://api.example:{{ payload.port }}/",
        "https:///x",
        "https://a b/",
    ],
)
def test_scheme_and_host_are_written_out(url: str) -> None:
    with pytest.raises(BadTemplate, match="must be absolute"):
        RequestTemplate.of("lane", method="GET", url=url)


@pytest.mark.parametrize(
    "url", [HOST, HOST + "/", HOST + ":8443/x", "http://[::1]:80/x", HOST + "?q={{ key }}"]
)
def test_an_absolute_url_is_taken(url: str) -> None:
    RequestTemplate.of("lane", method="GET", url=url)


@pytest.mark.parametrize("url", [HOST + "/a b", HOST + "/x#frag", HOST + "/<id>", HOST + "/é"])
def test_what_stands_in_a_url_must_be_encoded_already(url: str) -> None:
    with pytest.raises(BadTemplate, match="percent-encode"):
        RequestTemplate.of("lane", method="GET", url=url)


def test_a_password_in_the_url_is_refused() -> None:
    with pytest.raises(BadTemplate, match="from secrets"):
        RequestTemplate.of("lane", method="GET", url="https://me:pw@api.example/")


# --- headers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "a\0b", "a\x7fb"])
def test_no_value_can_add_a_header(value: str) -> None:
    detail = refusal(job({"name": value}), headers={"X-Name": "{{ payload.name }}"})
    assert detail == "headers.X-Name: a control character"


def test_headers_see_the_whole_job() -> None:
    names = ("key", "lane", "type", "run", "deadline", "headers.tenant", "secrets.token")
    envelope = job(deadline=WHEN, headers={"tenant": "T-7"})
    request = rendered(
        envelope, headers={"X": "|".join(f"{{{{ {name} }}}}" for name in names)}, secrets={"token": "s3"}
    )
    assert request.headers["X"] == (
        "run-1:T-7|reminders|rent.reminder.v1|run-1|2026-07-31T09:30:00+00:00|T-7|s3"
    )
    assert "s3" not in repr(request)


# --- the body ------------------------------------------------------------------------------------------


def test_json_keeps_the_type_of_a_value_that_stands_alone() -> None:
    payload = {"n": 7, "list": [1, {"a": None}], "no": False, "items": "not a method", "name": "Ann"}
    template = {
        "n": "{{ payload.n }}",
        "list": "{{ payload.list }}",
        "no": "{{ payload.no }}",
        "text": "{{ payload.name }}, {{ payload.n }}",
        "items": "{{ payload.items }}",
        "run": "{{ run }}",
        "late": "{{ deadline }}",
        "fixed": [1, True, "x"],
        "price": "{{ '%.2f' | format(payload.n / 100) }}",
        "nick": "{{ payload.nick | default('none') }}",
    }
    request = rendered(job(payload, run=None, deadline=WHEN), json_body=template)
    assert request.headers["Content-Type"] == "application/json"
    assert json.loads(request.body or b"") == {
        "n": 7,
        "list": [1, {"a": None}],
        "no": False,
        "text": "Ann, 7",
        "items": "not a method",
        "run": None,
        "late": "2026-07-31T09:30:00+00:00",
        "fixed": [1, True, "x"],
        "price": "0.07",
        "nick": "none",
    }


def test_json_may_be_one_value_of_the_job() -> None:
    assert rendered(job({"order": {"a": 1}}), json_body="{{ payload.order }}").body == b'{"a":1}'


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_text_can_leave_its_place_in_the_json(text: str) -> None:
    request = rendered(job({"t": text}), json_body={"a": "{{ payload.t }}", "b": "<{{ payload.t }}>"})
    assert json.loads(request.body or b"") == {"a": text, "b": f"<{text}>"}


def test_a_text_body_is_what_it_says() -> None:
    request = rendered(job({"n": "é"}), text_body="n={{ payload.n }}\n")
    assert (request.body, request.headers["Content-Type"]) == ("n=é\n".encode(), "text/plain; charset=utf-8")
    request = rendered(job(), text_body="x", headers={"content-type": "text/csv"})
    assert request.headers == {"content-type": "text/csv"}


def test_without_a_template_the_job_goes_as_it_came() -> None:
    request = rendered(job(raw=b"\x00not json"))
    assert (request.body, request.headers["Content-Type"]) == (b"\x00not json", "application/json")


@pytest.mark.parametrize(
    ("method", "parts"), [("GET", {}), ("DELETE", {}), ("HEAD", {}), ("POST", {"text_body": ""})]
)
def test_there_may_be_no_body(method: str, parts: Mapping[str, Any]) -> None:
    request = rendered(job(), method=method, **parts)
    assert (request.body, request.headers) == (None, {})


# --- what is missing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("envelope", "parts", "detail"),
    [
        (job({}), {"url": HOST + "/{{ payload.id }}"}, "url: id is missing"),
        (job({"a": {}}), {"json_body": {"x": ["{{ payload.a.id }}"]}}, "json.x[0]: id is missing"),
        (job({"k": "s3cret!"}), {"text_body": "{{ payload[payload.k] }}"}, "body: an item is missing"),
        (job(run=None), {"headers": {"X": "{{ run }}"}}, "headers.X: a value is null"),
        (job({"a": [1]}), {"url": HOST + "/{{ payload.a }}"}, "url: a value is a list or a table"),
        (job({"a": "x"}), {"text_body": "{{ payload.a + 1 }}"}, "body: TypeError"),
        (job(raw=b"no"), {"text_body": "{{ payload.a }}"}, "payload: the body is not JSON"),
        (job(raw=b"NaN"), {"json_body": "{{ payload }}"}, "payload: the body is not JSON"),
        (job(raw=b"\xff"), {"text_body": "{{ body }}"}, "body: the body is not UTF-8"),
        (job({"a": "\ud800"}), {"text_body": "{{ payload.a }}"}, "body: half a surrogate pair"),
        (job({"a": "\ud800"}), {"headers": {"X": "{{ payload.a }}"}}, "headers.X: half a surrogate pair"),
        (job({"a": "\ud800"}), {"url": HOST + "/{{ payload.a }}"}, "url: UnicodeEncodeError"),
        (job({"a": "x" * 9000}), {"url": HOST + "/{{ payload.a }}"}, "url: no URL, or longer than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_is_named_and_no_value_is(envelope: Envelope, parts: Any, detail: str) -> None:
    found = refusal(envelope, **parts)
    assert found.startswith(detail)
    assert "s3cret" not in found


def test_templates_are_in_a_sandbox() -> None:
    for escape in ("{{ payload.__class__ }}", "{{ ''.__class__.__mro__ }}", "{{ key.format.__globals__ }}"):
        assert refusal(job(), text_body=escape)
    with pytest.raises(BadTemplate, match="names range"):
        RequestTemplate.of("lane", method="GET", url=HOST, text_body="{{ range(9) }}")


def test_the_body_is_read_as_json_only_where_a_template_asks() -> None:
    assert rendered(job(raw=b"no"), text_body="{{ key }}").body == b"run-1:T-7"


# --- what is wrong with a template -----------------------------------------------------------------------


def test_everything_wrong_is_found_at_once() -> None:
    found = dict(
        problems(
            "/x/{{ payload.id }}",
            {"A": "{{ atempt }}", "B": "{{ secrets.tokn }}", "C": "{{ key"},
            {"x": ["{{ pyload.a }}", "{{ secrets.other }}"]},
            None,
            {"token": "s"},
        )
    )
    assert set(found) == {"url", "headers.A", "headers.B", "headers.C", "json"}
    assert found["headers.A"].startswith("names atempt: known are body, deadline, headers, key")
    assert "secrets.tokn" in found["headers.B"]
    assert found["headers.C"].startswith("is no template")
