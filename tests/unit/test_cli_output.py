"""What commands print: what others wrote does nothing to a terminal, in JSON neither."""

from __future__ import annotations

import json

import pytest
from rich.console import Group
from rich.text import Text

from acklast.cli.output import complain, line, people, safe, text_of

NASTY = "\x1b[2J\x9b\u202e\x7f\nall is well"
SHOWN = "\\x1b[2J\\x9b\\u202e\\x7f\\nall is well"


def test_what_cannot_be_seen_is_escaped() -> None:
    assert safe("Größe 10 → 20: [red]") == "Größe 10 → 20: [red]"
    assert safe(NASTY) == SHOWN
    assert safe("a\tb\nc", keep="\n\t") == "a\tb\nc"


def test_a_console_shows_it_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    people().print(NASTY, style="bold")
    people(stderr=True).print(f"{NASTY}:", NASTY)
    captured = capsys.readouterr()
    assert captured.out == f"{SHOWN}\n"
    assert captured.err.replace("\n", "") == f"{SHOWN}: {SHOWN}".replace("\n", "")


def test_a_picture_does_too(capsys: pytest.CaptureFixture[str]) -> None:
    people().print(Group(text_of(NASTY), Text("\x1b[2J\x9b")))
    assert capsys.readouterr().out == f"{SHOWN}\n\\x1b[2J\\x9b\n"


def test_json_says_the_same_in_its_own_escapes() -> None:
    told = line({NASTY: [NASTY, "\U000e0001ö"]})
    assert told.isprintable()
    assert "ö" in told
    assert json.loads(told) == {NASTY: [NASTY, "\U000e0001ö"]}


def test_an_error_keeps_its_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    complain("no key 'a\x1bb'\n  nor another", "Look", 3, as_json=False)
    assert capsys.readouterr().err == "error: no key 'a\\x1bb'\n  nor another\n  Look\n"
