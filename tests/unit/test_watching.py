"""What is watched is one picture on a terminal, and elsewhere a line for each change."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console, Group
from rich.text import Text

from acklast.cli import watching
from acklast.cli.watching import Look, screen

LOOK: Look[int] = Look(
    changes=lambda found: found // 10,
    lines=lambda found: [f"at {found}"],
    document=lambda found: {"at": found},
    picture=lambda found: Group(Text(f"picture of {found}")),
)


def test_a_line_comes_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        with screen(LOOK, as_json=as_json) as show:
            for found in (1, 2, 11, 12, 3):
                show(found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["at 1", "at 11", "at 3"]
    assert [json.loads(line)["at"] for line in lines[3:]] == [1, 11, 3]


def test_a_terminal_has_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    monkeypatch.setattr(watching, "people", lambda: Console(file=out, force_terminal=True))
    with screen(LOOK, as_json=False) as show:
        for found in (1, 2):
            show(found)
    assert "picture of 2" in out.getvalue()
    assert "at 1" not in out.getvalue()
