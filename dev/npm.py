"""The packages of Node that some tests use, kept outside the repository: ``~/.cache/acklast/node``.

Their versions and digests are pinned by ``tests/javascript/package-lock.json``. Nothing of the product needs
them: where Node or its registry is missing, those tests are skipped.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

_MANIFEST = Path(__file__).parents[1] / "tests" / "javascript"
_FILES = ("package.json", "package-lock.json", ".npmrc")
_LIMIT_S = 120.0


def installed() -> Path | None:
    """The directory that holds ``node_modules``; None where there is none, or no Node."""
    place = _place(os.environ)
    return place if shutil.which("node") and (place / "node_modules").is_dir() else None


def install() -> str:
    """Have the packages at hand. Gives why they are not, or nothing."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "there is no node, or no npm"
    if installed():
        return ""
    place = _place(os.environ)
    place.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place first: nobody takes half of it for the whole, and two at a time are no harm.
    made = Path(tempfile.mkdtemp(prefix="part-", dir=place.parent))
    try:
        for name in _FILES:
            shutil.copy(_MANIFEST / name, made)
        problem = _fetch(made)
        if not problem and not place.exists():
            made.rename(place)
        return problem
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _fetch(directory: Path) -> str:
    try:
        done = subprocess.run(
            ["npm", "ci"],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"'npm ci' was not done within {_LIMIT_S:.0f} seconds"
    return f"'npm ci' failed:\n{done.stderr.strip()[-500:]}" if done.returncode else ""


def _place(env: Mapping[str, str]) -> Path:
    cache = env.get("XDG_CACHE_HOME")
    base = Path(cache) if cache else Path.home() / ".cache"
    lock = hashlib.sha256((_MANIFEST / "package-lock.json").read_bytes()).hexdigest()
    return base / "acklast" / "node" / lock[:16]
