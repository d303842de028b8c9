"""The examples' own configurations and handlers, each as in a program of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """The ``acklast.toml`` of an example. Modules like ``handlers``, which others have too, go afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield lambda name: EXAMPLES / name / "acklast.toml"
    ours = [
        name
        for name, module in sys.modules.items()
        if EXAMPLES in Path(getattr(module, "__file__", None) or "/").parents
    ]
    for name in ours:
        del sys.modules[name]
