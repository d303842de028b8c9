"""How a redrive is to be tried, as people type it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.cli.redrive_given import (
    STEPS,
    cumulative,
    parse_part,
    parse_rate,
    parse_steps,
    shown_rate,
)
from acklast.pacing.controls import Refused


@pytest.mark.parametrize(
    ("text", "letters", "ends"),
    [
        (STEPS, 18_000, [1, 5, 20, 18_000]),
        (STEPS, 12, [1, 5, 12]),
        (STEPS, 5, [1, 5]),
        (STEPS, 1, [1]),
        ("1%,10%,100%", 1000, [10, 100, 1000]),
        ("1.1%,100%", 1000, [11, 1000]),
        ("0.1%,100%", 10, [1, 10]),
        # The part is smaller than the number before it: one letter more all the same.
        ("100,1%,100%", 1000, [100, 101, 1000]),
        # The last step is all of them, whether it is said or not.
        ("3", 10, [3, 10]),
        ("50%", 10, [5, 10]),
        ("1,2,3", 2, [1, 2]),
        (" 1 , 100% ", 4, [1, 4]),
    ],
)
def test_steps_end_at_so_many_letters(text: str, letters: int, ends: list[int]) -> None:
    assert cumulative(parse_steps(text), letters) == ends


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=9, unique=True).map(sorted),
    st.lists(st.floats(0.01, 100), max_size=9, unique=True).map(
        lambda found: sorted(round(x, 2) for x in found)
    ),
    st.integers(1, 10**6),
)
def test_steps_grow_and_end_with_all(numbers: list[int], parts: list[float], letters: int) -> None:
    parts = sorted(set(parts))
    text = ",".join([*map(str, numbers), *(f"{part}%" for part in parts)])
    ends = cumulative(parse_steps(text), letters)
    assert ends[-1] == letters
    assert ends == sorted(set(ends))
    assert ends[0] >= 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1,",
        "a",
        "0",
        "0%",
        "5,1",
        "5,5",
        "50%,10%",
        "101%",
        "100%,5",
        "-1",
        "1;5",
        "1e3",
        "٣",
        "1," * 101,
    ],
)
def test_steps_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_steps(text)


@pytest.mark.parametrize(
    ("text", "per_s", "shown"),
    [
        ("5/s", 5, "5/s"),
        ("5", 5, "5/s"),
        ("0.5 / s", 0.5, "30/min"),
        ("90/min", 1.5, "1.5/s"),
        ("36/h", 0.01, "36/h"),
    ],
)
def test_a_rate_is_so_many_a_second(text: str, per_s: float, shown: str) -> None:
    assert parse_rate(text) == pytest.approx(per_s)
    assert shown_rate(parse_rate(text)) == shown


@pytest.mark.parametrize("text", ["", "0", "0/s", "-1/s", "5/d", "fast", "5/s/s", "inf", "1" * 10])
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_rate(text)


@pytest.mark.parametrize(("text", "part"), [("2%", 0.02), ("0", 0), ("0%", 0), ("100%", 1), ("1.1%", 0.011)])
def test_a_part_is_in_percent(text: str, part: float) -> None:
    assert parse_part(text) == part


@pytest.mark.parametrize("text", ["", "2", "0.02", "101%", "-1%", "2 %%", "nan%"])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_part(text)
