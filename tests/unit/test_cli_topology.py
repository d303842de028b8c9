"""What ``topology plan`` prints: a line for each change, and what to do once for those that lie together."""

from __future__ import annotations

import pytest

from acklast.cli.topology import tell_changes
from acklast_topology.changes import Action, Change


def test_nothing_at_all_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    tell_changes([])
    assert capsys.readouterr().out == "Nothing is to be changed.\n"


def test_one_remedy_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    empty = [Change(Action.REMOVE, "queue", name, "is empty", "prune", 0) for name in ("a", "b")]
    tell_changes([*empty, Change(Action.CREATE, "queue", "c", "is not there", "", None)])
    assert capsys.readouterr().out.splitlines() == [
        "- remove   queue    a: is empty",
        "- remove   queue    b: is empty",
        "                    prune",
        "+ create   queue    c: is not there",
    ]
