"""The benchmark's meter: whoever counts, the runner sees every job and its moment."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest

from bench import meter

ROOT = Path(__file__).parents[2]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(meter.DIRECTORY, str(tmp_path))
    monkeypatch.setenv(meter.CAPACITY, "1000")
    monkeypatch.setattr(meter, "_meters", [])
    return tmp_path


def test_jobs_are_counted_with_their_moments(directory: Path) -> None:
    before = monotonic()
    for _ in range(3):
        meter.hit()
    readings = meter.Readings(directory)
    assert readings.count() == 3
    moments = readings.moments()
    assert before <= moments[0] <= moments[1] <= moments[2] <= monotonic()


def test_threads_that_start_together_lose_no_job(directory: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(meter.hit) for _ in range(400)]:
            done.result()
    assert meter.Readings(directory).count() == 400
    assert len(meter.Readings(directory).moments()) == 400


def test_every_process_counts(directory: Path) -> None:
    meter.hit()
    command = [sys.executable, "-c", "from bench.meter import hit; hit(); hit()"]
    subprocess.run(command, cwd=ROOT, check=True)
    readings = meter.Readings(directory)
    assert readings.count() == 3
    assert readings.moments() == sorted(readings.moments())


def test_a_forked_worker_counts_for_itself(directory: Path) -> None:
    meter.hit()
    program = "import os\nfrom bench.meter import hit\nhit()\nif os.fork():\n    os.wait()\nelse:\n    hit()"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    assert meter.Readings(directory).count() == 3


def test_more_jobs_than_there_are_do_not_write_beyond_the_end(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(meter.CAPACITY, "2")
    for _ in range(3):
        meter.hit()
    readings = meter.Readings(directory)
    assert readings.count() == 3
    assert len(readings.moments()) == 2
