"""An older version of the product to run beside this one: out of git's history, before the last migration."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final

_TREE: Final = Path(__file__).parents[2]
_MIGRATIONS: Final = "daemon/acklast/ledger/migrations"
_PARTS: Final = ("topology", "daemon", "tests", "dev")


def older() -> str:
    """The newest commit with a smaller schema that may run on this one; nothing where history has none."""
    ours = _ours()
    for commit in _candidates():
        theirs = set(_git("ls-tree", commit, f"{_MIGRATIONS}/").splitlines())
        if theirs < ours and "goes_beside" in _git("show", f"{commit}:daemon/acklast/ledger/migrate.py"):
            return commit
    return ""


def _ours() -> set[str]:
    """Each migration of this tree as ``git ls-tree`` has it, changed and new ones too."""
    files = sorted((_TREE / _MIGRATIONS).glob("*.sql"))
    digests = _git("hash-object", *map(str, files)).split()
    return {
        f"100644 blob {digest}\t{_MIGRATIONS}/{file.name}"
        for digest, file in zip(digests, files, strict=True)
    }


def _candidates() -> Iterator[str]:
    """This commit, and what was there before each one that touched a migration; the newest first."""
    yield from _git("rev-parse", "-q", "--verify", "HEAD").split()
    for line in _git("log", "--format=%P", "--", _MIGRATIONS).splitlines():
        yield from line.split()[:1]


def _git(*arguments: str) -> str:
    """What git says; nothing where this is no clone, or one without its history."""
    try:
        done = subprocess.run(["git", *arguments], cwd=_TREE, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def laid_out(commit: str, there: Path, version: str) -> str:
    """Lay a commit's sources out, as ``version``; where its programs find their modules."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, *_PARTS], cwd=_TREE, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(there, filter="data")
    return os.pathsep.join((_named(there, version), *(str(there / part) for part in _PARTS[:3]), str(there)))


def this_as(version: str, there: Path) -> str:
    """The same of this tree."""
    return os.pathsep.join((_named(there, version), str(_TREE / "tests"), str(_TREE)))


def _named(there: Path, version: str) -> str:
    """A directory that says which version of the product is installed, to who looks in it first."""
    about = there / "named" / f"acklast-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acklast\nVersion: {version}\n")
    return str(about.parent)
