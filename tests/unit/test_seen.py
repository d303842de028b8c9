"""Keys that came before are found, in memory that a million of them fit into."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from acklast.cli.seen import Came, Seen

ONE, OTHER = b"\1" * 32, b"\2" * 32


def test_a_key_that_comes_again_is_told_with_its_first_place() -> None:
    seen = Seen(slots=4)
    assert seen.add("a", ONE, 7) == (Came.FIRST, 7)
    assert seen.add("b", ONE, 8) == (Came.FIRST, 8)
    assert seen.add("a", ONE, 9) == (Came.AGAIN, 7)
    assert seen.add("a", OTHER, 10) == (Came.OTHER, 7)


@given(st.lists(st.tuples(st.text(max_size=3), st.sampled_from([ONE, OTHER])), max_size=300))
def test_it_tells_what_a_dictionary_tells(added: list[tuple[str, bytes]]) -> None:
    seen, plain = Seen(slots=4), dict[str, tuple[int, bytes]]()
    for place, (key, content) in enumerate(added, 1):
        first, before = plain.setdefault(key, (place, content))
        came = Came.FIRST if first == place else Came.AGAIN if before == content else Came.OTHER
        assert seen.add(key, content, place) == (came, first)


def test_ten_thousand_keys_take_less_than_a_megabyte() -> None:
    tracemalloc.start()
    try:
        seen = Seen()
        for number in range(10_000):
            seen.add(f"run:{number}", ONE, number)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
