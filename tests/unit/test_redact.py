"""What is to be hidden is hidden, and nothing else; what cannot be read as a path is refused."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.redact import REDACTED, Redaction, Shown, parse_path, redact, shown

HIDDEN = "hidden"
NAMES = st.sampled_from(["a", "b", HIDDEN, "a b", "ü"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=15,
)
MESSAGE = {"email": "a@b.c", "lines": [{"name": "x", "n": 1}, {"name": "y"}], "a b": {"name": ["z"]}, "n": 2}
HERE = REDACTED


def hidden(path: str, value: Any = MESSAGE) -> Any:
    return redact(copy.deepcopy(value), [parse_path(path)])


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("$.email", {"email": HERE}),
        ("$['email']", {"email": HERE}),
        ('$["email"]', {"email": HERE}),
        ("$['a b']", {"a b": HERE}),
        ("$.lines[1]", {"lines": [{"name": "x", "n": 1}, HERE]}),
        ("$.lines[*].name", {"lines": [{"name": HERE, "n": 1}, {"name": HERE}]}),
        ("$.lines.*.n", {"lines": [{"name": "x", "n": HERE}, {"name": "y"}]}),
        ("$..name", {"lines": [{"name": HERE, "n": 1}, {"name": HERE}], "a b": {"name": HERE}}),
        ("$..['name']", {"lines": [{"name": HERE, "n": 1}, {"name": HERE}], "a b": {"name": HERE}}),
        ("$.lines..n", {"lines": [{"name": "x", "n": HERE}, {"name": "y"}]}),
        ("$['a b'].name[0]", {"a b": {"name": [HERE]}}),
        ("$.*", dict.fromkeys(MESSAGE, HERE)),
        ("$.nothing.there", {}),
        ("$.lines[7]", {}),
        ("$.email.deeper", {}),
        ("$[0]", {}),
    ],
)
def test_a_path_names_places(path: str, changed: dict[str, Any]) -> None:
    assert hidden(path) == MESSAGE | changed


def test_the_body_as_a_whole() -> None:
    assert hidden("$") == REDACTED


NO_PATHS = ["", "email", ".email", "$email", "$.", "$..", "$..*", "$.a.", "$[", "$[a]", "$[-1]", "$[1:2]"]
NO_PATHS += ["$['a]", "$[?@.a]", "$.a b", "$. a", "$['a','b']", "$[01]", "$.1a", "$.a[]", "$['a\\x']", " $.a"]


@pytest.mark.parametrize("text", NO_PATHS)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must begin|cannot be read"):
        Redaction.of([text])


@given(JSON)
def test_a_deep_member_is_nowhere_and_all_else_stays(value: Any) -> None:
    before = copy.deepcopy(value)
    result = hidden(f"$..{HIDDEN}", value)
    assert value == before
    assert result == without(value)


def without(value: Any) -> Any:
    """The plain way to say the same."""
    match value:
        case dict():
            return {name: REDACTED if name == HIDDEN else without(item) for name, item in value.items()}
        case list():
            return [without(item) for item in value]
        case _:
            return value


@given(st.text())
def test_any_name_can_be_written(name: str) -> None:
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    assert hidden(f"$['{quoted}']", {name: 1, f"{name}-": 2}) == {name: REDACTED, f"{name}-": 2}


@given(st.binary())
def test_without_paths_nothing_is_lost(payload: bytes) -> None:
    found = shown(payload, [])
    assert found.text is not None
    if found.form == "text":
        assert found.text.encode() == payload
    else:
        assert found.form == "escaped"
        # Every backslash is the beginning of an escape: it can be read back.
        pieces = re.split(rb"\\(\\|x[0-9a-f]{2})", found.text.encode())
        pieces[1::2] = [b"\\" if one == b"\\" else bytes.fromhex(one[1:].decode()) for one in pieces[1::2]]
        assert b"".join(pieces) == payload


@given(st.binary() | st.text().map(str.encode) | JSON.map(json.dumps).map(str.encode))
def test_with_paths_only_json_is_shown(payload: bytes) -> None:
    found = shown(payload, [parse_path("$..hidden")])
    try:
        expected = without(json.loads(payload))
    except ValueError:
        assert found == Shown(None, "withheld")
    else:
        assert found.form in ("redacted", "withheld")
        assert found.text is None or json.loads(found.text) == expected


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (None, Shown(None, "gone")),
        (b"[" * 100_000, Shown(None, "withheld")),
        (b'{"a":"\\ud800"}', Shown(None, "withheld")),
        (b'{"hidden": 1, "hidden": 2}', Shown('{"hidden": "[redacted]"}', "redacted")),
    ],
)
def test_what_cannot_be_redacted_is_not_shown(payload: bytes | None, expected: Shown) -> None:
    assert shown(payload, [parse_path("$.hidden")]) == expected


def test_bytes_that_are_no_text_are_escaped() -> None:
    assert shown(b"a\xff\\x", []) == Shown("a\\xff\\\\x", "escaped")


def test_headers_have_paths_of_their_own() -> None:
    redaction = Redaction.of(["$.a", "headers.authorization", "headers['x y']"])
    assert len(redaction.body) == 1
    headers = {"authorization": "Bearer", "x y": 1, "z": 2}
    assert redact(headers, redaction.headers) == {"authorization": REDACTED, "x y": REDACTED, "z": 2}
