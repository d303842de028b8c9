"""Failures that are alike have one fingerprint, others do not, and it is the same on every machine."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acklast.fingerprint import FRAMES, TEXT_MAX, Raised, fingerprint, normalised, text_digest
from harness.drawn import drawn

ANY_TEXT = st.text(st.characters() | st.sampled_from("\x00\ud800\n'\"`@:.-0e "))
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(timezones=ZONES)
SINCE_1000 = TIMES.filter(lambda time: time.year >= 1000)
INNER = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="'\"`“”«»"))
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
# What differs from one job to the next, by its kind: any two of a kind are alike.
VALUES = {
    "number": NUMBERS.map(str),
    "amount": st.floats(0, 1e6).map("{:,.2f}".format),
    "UUID": st.uuids().map(str),
    "bare UUID": st.uuids().map(lambda one: one.hex).filter(re.compile("[0-9]").search),
    "hash": st.binary(min_size=16, max_size=32).map(bytes.hex).filter(re.compile("[0-9]").search),
    "memory address": st.integers(0).map(hex),
    "IPv4": st.ip_addresses(v=4).map(str),
    "IPv6": st.ip_addresses(v=6).map(str).filter(re.compile("[0-9]").search),
    "mail address": st.from_regex(r"[a-z0-9._]{1,20}@[a-z]{1,9}(\.[a-z]{1,9}){1,2}", fullmatch=True),
    "ISO 8601": TIMES.map(datetime.isoformat),
    "ISO 8601 in UTC": SINCE_1000.map("{:%Y-%m-%d %H:%M:%SZ}".format),
    "HTTP date": TIMES.map(format_datetime),
    "ctime": SINCE_1000.map(datetime.ctime),
    "quoted": INNER.map("'{}'".format),
    "quoted twice": INNER.map('"{}"'.format),
    "id": st.from_regex(r"[A-Za-z]{4}[0-9][A-Za-z0-9]{4,20}", fullmatch=True),
}


@pytest.mark.parametrize("kind", VALUES)
@drawn(10, 100)
@given(st.data())
def test_values_of_one_kind_are_replaced(kind: str, data: st.DataObject) -> None:
    one, other = data.draw(VALUES[kind]), data.draw(VALUES[kind])
    text = "the house {} was refused, code {}"
    first, second = text.format(one, other), text.format(other, one)
    assert normalised(first) == normalised(second) == "the house # was refused, code #"
    assert fingerprint("refused", first) == fingerprint("refused", second)
    assert text_digest(first) == text_digest(second)


@given(st.from_regex(r"[!-~]{3,60}", fullmatch=True), st.from_regex(r"[!-~]{3,60}", fullmatch=True))
def test_the_jobs_own_key_is_replaced(one: str, other: str) -> None:
    text = "no job {} here"
    assert fingerprint("r", text.format(one), one) == fingerprint("r", text.format(other), other)


def test_a_key_is_replaced_as_a_whole_word_only() -> None:
    assert normalised("the house is in the north", "the") == "# house is in # north"
    assert normalised("another theory", "the") == "another theory"
    assert normalised("a house", "a") == "a house"


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT | st.none())
def test_anything_has_a_fingerprint_of_one_form(reason: str, detail: str, key: str | None) -> None:
    raised = Raised("E", text_digest(detail, key), (detail,))
    assert re.fullmatch("v1-[0-9a-f]{16}", fingerprint(reason, detail, key, raised))
    assert len(normalised(detail, key)) <= TEXT_MAX


@given(st.lists(st.sampled_from(["a", "b", ""]), min_size=4, max_size=4))
def test_each_part_counts_and_in_its_place(parts: list[str]) -> None:
    def of(reason: str, detail: str, kind: str, frame: str) -> str:
        return fingerprint(reason, detail, None, Raised(kind, "", (frame,)))

    same = of(*parts) == of("a", "b", "", "a")
    assert same == (parts == ["a", "b", "", "a"])


def test_frames_beyond_the_caller_do_not_count() -> None:
    frames = ("m:inner", "m:outer")
    assert len(frames) == FRAMES
    near = fingerprint("r", raised=Raised("E", "", (*frames, "m:far")))
    assert near == fingerprint("r", raised=Raised("E", "", (*frames, "m:elsewhere")))
    assert near != fingerprint("r", raised=Raised("E", "", frames[::-1]))


def test_the_rest_of_a_text_does_not_count() -> None:
    assert normalised("\n  refused:\nbody 1\nbody 2") == "refused:"
    assert len(normalised("x" * 5000)) == TEXT_MAX


def test_words_that_only_look_like_values_stay() -> None:
    kept = "can't find the faced deadbeef of std::vector, and don't"
    assert normalised(kept) == kept


@pytest.mark.parametrize("hostile", ["a", "@", "'", "0:", "1.", "a.@", "a'", "mon "])
def test_a_hostile_text_is_soon_done(hostile: str) -> None:
    # A pattern that goes back over it would take minutes, and the test would never end.
    assert all(len(normalised(hostile * 4096)) <= TEXT_MAX for _ in range(20))


def test_fingerprints_are_the_same_everywhere_and_for_good() -> None:
    """They are stored. Whoever changes one changes ``VERSION`` with it."""
    raised = Raised("ValueError", text_digest("no house 17"), ("handlers:post", "handlers:cleanup"))
    assert fingerprint("unrouted") == "v1-2021b3ab705e3a62"
    assert fingerprint("exception:ValueError", "ValueError at h.py:3 f", "k", raised) == "v1-2ac69c62312babef"
