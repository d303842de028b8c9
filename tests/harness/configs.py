"""Writing a configuration into a test's directory and reading it back."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from acklast.config import Config, load
from acklast.errors import ConfigError, Exit

HOME = {"HOME": "/home/jobs"}
GOOD = """
app = "handlers:app"
[broker]
url = "amqp://guest:s3cret@rabbit:5672/vhost"
[ledger]
dsn = "postgresql://acklast:s3cret@db:5432/ledger"
[budgets.property-api]
quota = "50 per 1 s"
[lanes.cleanup]
budget = "property-api"
[lanes.rent-reminders]
concurrency = 3
"""


def changed(old: str, new: str) -> str:
    """The good configuration with one thing changed."""
    assert old in GOOD
    return GOOD.replace(old, new)


def read(
    tmp_path: Path, text: str = GOOD, env: dict[str, str] | None = None, instance: str | None = None
) -> Config:
    """Write ``text`` as ``acklast.toml`` and load it with this environment alone."""
    path = tmp_path / "acklast.toml"
    path.write_text(dedent(text), encoding="utf-8")
    return load(path, HOME | (env or {}), instance=instance)


def complaint(tmp_path: Path, text: str = GOOD, env: dict[str, str] | None = None) -> str:
    """What loading this complains of."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, env)
    assert caught.value.exit is Exit.CONFIG
    return caught.value.what
