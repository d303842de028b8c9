"""promtool, which reads rules and tries them."""

from __future__ import annotations

import subprocess
from pathlib import Path


def ask(tool: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
