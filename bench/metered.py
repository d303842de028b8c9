"""The metered provider of a measurement, as the one that runs it sees it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Metered:
    """A running provider."""

    port: int

    def accounts(self) -> dict[str, dict[str, Any]]:
        """What each of its meters has counted so far."""
        found: dict[str, dict[str, Any]] = self._ask("GET", "/")
        return found

    def account(self, name: str) -> dict[str, Any]:
        return self.accounts()[name]

    def served(self, name: str) -> list[float]:
        """When each call arrived that was served, by the provider's clock."""
        found: list[float] = self._ask("GET", f"/{name}")
        return found

    def be_quiet(self, name: str, seconds: float) -> None:
        """Have it refuse all calls for so long."""
        self._ask("PUT", f"/{name}/{seconds}")

    def _ask(self, method: str, path: str) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - of our own making
            return json.load(answer)


@contextmanager
def provider(takes_s: tuple[float, float], quotas: Mapping[str, tuple[int, float]]) -> Iterator[Metered]:
    """Run one. ``takes_s``: an answer takes from so long to so long; ``quotas``: calls and a period."""
    meters = [f"{name}={count}/{period_s}" for name, (count, period_s) in quotas.items()]
    command = [sys.executable, "-m", "bench.provider", *map(str, takes_s), *meters]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Metered(int(process.stdout.readline()))
        finally:
            process.kill()
