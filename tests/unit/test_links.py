"""Every link of the documentation leads to something: a file that is there, a heading that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])

_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def prose(page: Path) -> str:
    return _CODE.sub("", page.read_text(encoding="utf-8"))


def anchor(heading: str) -> str:
    """As the usual hosts of repositories make it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def broken(page: Path) -> Iterator[str]:
    for link in _LINK.findall(prose(page)):
        where, _, part = link.partition("#")
        if re.match(r"[a-z]+:", where):
            continue
        target = page.parent / where if where else page
        headings = (
            _HEADING.findall(prose(target)) if part and target.suffix == ".md" and target.exists() else []
        )
        if not target.exists() or (headings and part not in map(anchor, headings)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `[two.<three>]`\n[a](#one-twothree) [b](page.md#four) [c](gone.md) [d](https://e.example/)\n"
    )
    assert list(broken(page)) == ["page.md#four", "gone.md"]


def test_the_readme_names_every_how_to() -> None:
    named = {
        link.partition("#")[0] for link in _LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    }
    assert {str(page.relative_to(ROOT)) for page in ROOT.glob("docs/how-to/*.md")} <= named
