"""A key template fills plain names in, reaches nothing else, and refuses rows that would share a key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.template import BadField, KeyTemplate

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_ -]{0,8}", fullmatch=True).filter(lambda name: name != "run")
LITERALS = st.text(max_size=8)


def test_a_key_is_made_of_the_run_and_the_rows_fields() -> None:
    template = KeyTemplate.parse("{run}:{property_id}/{unit no}")
    assert template.fields == {"property_id", "unit no"}
    row = {"property_id": "0042", "unit no": 7, "run": "the row's own, not used"}
    assert template.render("2030-01", row) == "2030-01:0042/7"


@given(st.lists(st.tuples(LITERALS, NAMES), min_size=1), LITERALS, st.data())
def test_every_name_is_replaced_by_its_value_and_nothing_else_is(
    parts: list[tuple[str, str]], tail: str, data: st.DataObject
) -> None:
    row = {name: data.draw(st.text(min_size=1) | st.integers()) for _, name in parts}
    text = "".join(f"{_escaped(literal)}{{{name}}}" for literal, name in parts) + _escaped(tail)
    expected = "".join(f"{literal}{row[name]}" for literal, name in parts) + tail
    assert KeyTemplate.parse(text).render("r", row) == expected


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "constant",
        "{run}",
        "{}",
        "{0}",
        "{id.__class__}",
        "{id[0]}",
        "{id!r}",
        "{id:>10}",
        "{id:{run}}",
        "{id",
        "id}",
        "{ id}",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        KeyTemplate.parse(text)


@given(st.text(alphabet=st.sampled_from(list("{}[]!:.ab 01")) | st.characters()))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        template = KeyTemplate.parse(text)
    except ValueError:
        return
    assert template.fields


@pytest.mark.parametrize("value", [None, "", True, 1.5, [1], {"a": 1}])
def test_a_field_without_a_usable_value_is_refused(value: object) -> None:
    with pytest.raises(BadField, match="'id'"):
        KeyTemplate.parse("{id}").render("r", {"id": value})


def test_a_missing_field_is_refused_by_name() -> None:
    with pytest.raises(BadField, match="'id' of the key is missing"):
        KeyTemplate.parse("{id}").render("r", {"other": 1})
