"""Every target of make that a page or a message names is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"\bmake ([a-z]+(?:-[a-z]+)*)\b(?=[`\s;:,.)]|$)")
CODE = re.compile(r"`([^`\n]+)`|^ *(make [a-z-]+)(?: +(?:#|[A-Z]+=).*)?$", re.MULTILINE)


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def named() -> set[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {
        (page, target)
        for page in listed.stdout.split()
        for spans in CODE.findall((ROOT / page).read_text())
        for target in NAMED.findall(" ".join(spans))
    }


def test_every_target_that_a_page_names_is_there() -> None:
    found = named()
    assert ("README.md", "demo-digest") in found
    assert {(page, target) for page, target in found if target not in targets()} == set()


def test_every_target_that_is_said_to_be_phony_is_there() -> None:
    [phony] = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(phony.split()) == targets()
