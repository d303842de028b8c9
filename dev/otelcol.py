"""A private OpenTelemetry Collector: it takes OTLP by gRPC and HTTP, and writes down all that it took.

Debian has its parts and no program, so it is not installed from here: ``ACKLAST_OTELCOL`` names one, or one
that is compressed by xz; else it is looked for in ``~/.cache/acklast/otelcol`` and on the path.
"""

from __future__ import annotations

import lzma
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dev.need import Missing
from dev.workspace import StackError, Workspace, free_port, last_lines, wait_until

PROGRAM: Final = "ACKLAST_OTELCOL"
READY_S: Final = 60.0
GRPC: Final = "grpc"
HTTP: Final = "http/protobuf"

# It says only some of what it says often, unless told otherwise: what is counted in its log is all there.
_CONFIG: Final = """\
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: 127.0.0.1:{grpc}}}
      http: {{endpoint: 127.0.0.1:{http}}}
exporters:
  debug: {{verbosity: detailed}}
{forward}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{sampling: {{enabled: false}}}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [{exporters}]}}
    metrics: {{receivers: [otlp], exporters: [{exporters}]}}
    logs: {{receivers: [otlp], exporters: [{exporters}]}}
"""
_FORWARD: Final = "  otlp_http: {{endpoint: '{url}', compression: none}}"


def program() -> Path:
    """Where the collector is.

    Raises:
        Missing: nowhere; the text says how to name one.
    """
    if named := os.environ.get(PROGRAM):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    kept = (Path(cache) if cache else Path.home() / ".cache") / "acklast" / "otelcol" / "otelcol"
    if kept.exists():
        return kept
    if found := shutil.which("otelcol"):
        return Path(found)
    raise Missing(f"There is no OpenTelemetry Collector: {PROGRAM} names one, with its otlp receiver")


class Collector:
    """One collector. It writes what it gets into ``text``, and hands it on to ``forward`` where that is set.

    A collector of which only that matters is ``quiet``: under load its own notes cost more than its work.
    """

    def __init__(self, workspace: Workspace, *, forward: str | None = None, quiet: bool = False) -> None:
        """``forward`` is the URL of another receiver of OTLP over HTTP."""
        self._workspace = workspace
        self._home = workspace.directory("otelcol")
        self._log = self._home / "otelcol.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.grpc, self.http = free_port(), free_port()
        text = _CONFIG.format(
            grpc=self.grpc,
            http=self.http,
            forward=_FORWARD.format(url=forward) if forward else "",
            exporters="debug, otlp_http" if forward else "debug",
        )
        self._config = workspace.write(
            self._home / "otelcol.yaml", text.replace("detailed", "basic") if quiet else text
        )
        self._program = self._at_hand(program())

    def _at_hand(self, found: Path) -> Path:
        """Where the user of the servers may run it."""
        here = self._home / "otelcol"
        if found.suffix == ".xz":
            with lzma.open(found) as packed, here.open("wb") as to:
                shutil.copyfileobj(packed, to)
        else:
            shutil.copyfile(found, here)
        here.chmod(0o700)
        self._workspace.give(here)
        return here

    def endpoint(self, protocol: str = GRPC) -> str:
        """Where it takes what comes by a protocol, as OTEL_EXPORTER_OTLP_ENDPOINT has it."""
        return f"http://127.0.0.1:{self.grpc if protocol == GRPC else self.http}"

    def env(self, protocol: str = GRPC) -> Mapping[str, str]:
        """What a process finds that exports to it."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint(protocol),
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        }

    def start(self) -> None:
        """Start it, and wait until it takes connections; on the same ports as before.

        Raises:
            StackError: it ended, or was not ready after ``READY_S``; with the end of its log.
        """
        self._process = process = self._workspace.spawn(
            [self._program, "--config", self._config],
            env={"PATH": "/usr/bin:/bin", "HOME": str(self._home)},
            log=self._log,
            end_with=signal.SIGTERM,
        )
        if not wait_until(self._answers, lambda: process.poll() is not None, timeout_s=READY_S):
            raise StackError("the collector did not become ready", last_lines(self._log))

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL. ``start`` brings it back."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: it takes connections and says nothing more."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def text(self) -> str:
        """All that it has written down so far."""
        return self._log.read_text(errors="replace")

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._workspace.end(self._process, number)
            self._process = None

    def _answers(self) -> bool:
        return all(_listens(port) for port in (self.grpc, self.http))


def _listens(port: int) -> bool:
    with socket.socket() as asking:
        asking.settimeout(1)
        return asking.connect_ex(("127.0.0.1", port)) == 0
