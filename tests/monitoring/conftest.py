"""What the tests of the monitoring files share."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev import need


@pytest.fixture(scope="session")
def promtool() -> Path:
    try:
        return need.promtool()
    except need.Missing as problem:
        pytest.skip(f"no promtool: {problem}")
