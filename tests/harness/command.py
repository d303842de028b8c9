"""Running ``acklast`` commands in this process, in a directory with a configuration and handlers."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acklast.cli.root import run
from harness.site import BUCKETS_S

HANDLERS = """
from acklast import App, Permanent

app = App()


@app.job("cleanup.v1", lane="cleanup")
async def cleanup(payload: dict) -> dict:
    if payload["id"] == "bad":
        raise Permanent("no_such_house")
    return {"cleaned": payload["id"]}
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """One command's end."""

    exit: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Command:
    """``command("check", "--json")`` runs one with the directory's configuration."""

    def __init__(self, directory: Path, url: str, dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self.config = directory / "acklast.toml"
        self.url = url
        self.dsn = dsn
        self._capsys = capsys
        # A module name of the directory's own: Python imports each name once in a process.
        self._module = f"handlers_{directory.name}"
        (directory / f"{self._module}.py").write_text(HANDLERS)
        self.configure()

    def configure(
        self,
        *,
        url: str | None = None,
        dsn: str | None = None,
        app: str | None = None,
        more: str = "",
        broker: str = "",
    ) -> None:
        """Write the configuration again; what is not given stays as it was.

        ``more`` goes to its top, and ``broker`` into that section.
        """
        self.url, self.dsn = url or self.url, dsn or self.dsn
        # Few, unless the test is about them: a broker takes its time to make each queue.
        buckets = "" if "wait_buckets_s" in more else f"wait_buckets_s = {list(BUCKETS_S)}\n"
        self.config.write_text(
            f'app = "{app or f"{self._module}:app"}"\nstate_dir = "state"\n{buckets}{more}\n'
            f'[broker]\nurl = "{self.url}"\n{broker}\n[ledger]\ndsn = "{self.dsn}"\n[lanes.cleanup]\n'
        )

    def __call__(self, *arguments: str) -> Ended:
        self._capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            # The environment may name the session's servers; the file names this test's own parts of them.
            for name in [name for name in os.environ if name.startswith("ACKLAST")]:
                patch.delenv(name)
            code = run([*arguments, "--config", str(self.config)])
        said = self._capsys.readouterr()
        return Ended(code, said.out, said.err)
