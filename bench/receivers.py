"""What a daemon exports to in a measurement: a real collector where there is one, or else a stand-in.

Either shares the machine with all else, counts what it takes in, and can be killed, hung and brought back.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bench.children import Child
from bench.queues import BenchError
from dev.need import Missing
from dev.otelcol import GRPC, HTTP, Collector
from dev.workspace import Workspace, free_port, wait_until

_READY_S: Final = 30.0
_SPANS: Final = re.compile(r'"spans": (\d+)')
_POINTS: Final = re.compile(r'"data points": (\d+)')


@dataclass(frozen=True, slots=True)
class Taken:
    """What a receiver has taken in since it was made."""

    spans: int
    points: int
    """Data points of metrics."""

    def since(self, before: Taken) -> Taken:
        return Taken(self.spans - before.spans, self.points - before.points)


class Receiver(Protocol):
    """One such process."""

    @property
    def title(self) -> str: ...

    def env(self) -> Mapping[str, str]: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def taken(self) -> Taken: ...


class RealCollector:
    """The OpenTelemetry Collector, which counts batches in its log and throws them away."""

    def __init__(self, workspace: Workspace, protocol: str) -> None:
        self.title = f"OpenTelemetry Collector, {protocol}"
        self._protocol = protocol
        self._collector = Collector(workspace, quiet=True)
        self.start, self.kill = self._collector.start, self._collector.kill
        self.pause, self.resume = self._collector.pause, self._collector.resume

    def env(self) -> Mapping[str, str]:
        return self._collector.env(self._protocol)

    def taken(self) -> Taken:
        text = self._collector.text()
        return Taken(sum(map(int, _SPANS.findall(text))), sum(map(int, _POINTS.findall(text))))


class StandIn:
    """oteltap in a process of its own: it decodes all that it gets in Python, and costs more for it."""

    title = "oteltap, http/protobuf: a stand-in"

    def __init__(self, directory: Path) -> None:
        self._port = free_port()
        self._directory = directory
        self._logs: list[Path] = []
        self._child: Child | None = None

    def env(self) -> Mapping[str, str]:
        endpoint = f"http://127.0.0.1:{self._port}"
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": HTTP}

    def start(self) -> None:
        log = self._directory / f"oteltap-{len(self._logs)}.log"
        self._logs.append(log)
        command = [sys.executable, "-m", "oteltap", "--port", str(self._port)]
        self._child = child = Child(command, {**os.environ, "PYTHONUNBUFFERED": "1"}, self._directory, log)
        if not wait_until(lambda: "Listening" in child.text(), lambda: child.ended, timeout_s=_READY_S):
            raise BenchError(f"oteltap does not start\n{child.last_lines()}")

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def taken(self) -> Taken:
        text = "".join(log.read_text(errors="replace") for log in self._logs)
        return Taken(text.count('"spanId"'), text.count('"timeUnixNano"'))

    def _signal(self, number: signal.Signals) -> None:
        assert self._child is not None
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)


@contextmanager
def receiver(protocol: str = GRPC) -> Iterator[Receiver]:
    """One that runs, and is gone at the end."""
    with Workspace() as workspace:
        made = _made(workspace, protocol)
        made.start()
        try:
            yield made
        finally:
            made.kill()


def _made(workspace: Workspace, protocol: str) -> Receiver:
    try:
        return RealCollector(workspace, protocol)
    except Missing:
        return StandIn(workspace.directory("oteltap"))
