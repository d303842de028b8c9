"""The page on testing handlers: each of its blocks is a part of a project, which runs as the page says."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-handlers.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.(?:py|toml))\n")


def files() -> dict[str, str]:
    """What is in each file that the page names; a file may come in several blocks."""
    found: defaultdict[str, str] = defaultdict(str)
    for kind, block in BLOCK.findall(PAGE.read_text()):
        named = FILE.match(block)
        assert named or kind == "text", f"a block that no test would run: {block[:80]}"
        if named:
            found[named[1]] += block.removeprefix(named[0]) + "\n\n"
    return dict(found)


def shown() -> list[str]:
    """What the page shows of a test that fails."""
    [text] = [block for kind, block in BLOCK.findall(PAGE.read_text()) if kind == "text"]
    lines: list[str] = text.splitlines()
    return lines


def test_every_block_of_the_page_runs_as_it_says(pytester: pytest.Pytester) -> None:
    project = files()
    for name, text in project.items():
        (pytester.path / name).write_text(text)
    ran = pytester.runpytest_subprocess("-W", "error", "-p", "no:asyncio")
    tests = sum(text.count("\ndef test_") for text in project.values())
    ran.assert_outcomes(passed=tests - 1, failed=1)
    said = [line.removeprefix("E").strip() for line in ran.outlines]
    assert f"AssertionError: {shown()[0]}" in said
    assert [line for line in shown()[1:] if line not in said] == []
