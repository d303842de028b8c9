"""Every command that a how-to names is there, with its options."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.commands import command_lines, problem

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/how-to/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_there(page: Path) -> None:
    found = {line: problem(line) for line in command_lines(page.read_text())}
    assert {line: said for line, said in found.items() if said} == {}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("acklast lanes revive mail", "acklast lanes takes no revive"),
        ("acklast jobs lost", "acklast jobs lost is no command"),
        ("acklast lanes pause mail --forever", "acklast lanes pause has no option --forever"),
        ("acklast vanish", "acklast takes no vanish"),
    ],
)
def test_a_command_that_is_not_there_is_found(line: str, why: str) -> None:
    assert problem(line) == why


@pytest.mark.parametrize(
    "command",
    ["runs cancel", "lanes pause", "lanes resume", "lanes set", "schedule pause", "schedule resume"],
)
def test_why_is_said_by_one_name_everywhere_and_by_the_older_ones(command: str) -> None:
    for name in ("--why", "--reason", "-r"):
        assert problem(f"acklast {command} x {name} y") == ""
