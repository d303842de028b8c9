"""Some drains under load, as ``make bench-drains`` makes a hundred of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.drains import main


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_some_drains_under_load_lose_and_repeat_nothing(tmp_path: Path) -> None:
    told = tmp_path / "drains.json"
    assert main(["--drains", "10", "--seed", "7", "--deadline", "30", "--json", str(told)]) == 0
    tables = json.loads(told.read_text())["tables"]
    assert len(tables["drains"]["rows"]) == 10
    assert all(lane["jobs"] and not lane["lost"] for lane in tables["lanes"]["rows"].values())
