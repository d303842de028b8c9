"""Virtual time reaches everything that a worker runs."""

from __future__ import annotations

import re
import time
from pathlib import Path

import acklast
from acklast import App
from acklast.testing import TestWorker
from acklast.testing.worker import CLOCKED

HOME = Path(acklast.__file__).parent
RUN = (
    "delivery",
    "judge",
    "drain",
    "settle",
    "settled",
    "intake",
    "lane",
    "letters",
    "custody",
    "handlers",
    "pacing",
    "http",
)
READS = re.compile(r"\btime\.(?:monotonic|time)\b(?! =)|from time import")


def module_of(path: Path) -> str:
    return ".".join(("acklast", *path.relative_to(HOME).with_suffix("").parts))


def test_every_module_of_the_delivery_path_that_has_a_clock_gets_the_virtual_one() -> None:
    files = [
        path for name in RUN for path in (HOME / f"{name}.py", *(HOME / name).glob("*.py")) if path.exists()
    ]
    assert len(files) > len(RUN)
    reading = {module_of(path) for path in files if READS.search(path.read_text())}
    assert reading == {module.__name__ for module in CLOCKED}


def test_the_clock_is_virtual_only_while_the_worker_runs() -> None:
    with TestWorker(App()):
        assert all(module.__dict__["time"] is time for module in CLOCKED)
