"""What the tests of the daemon as a process start from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from harness import Broker
from harness.site import Site, site


@pytest.fixture
def new_site(
    broker: Broker, ledger_dsn: str, tmp_path: Path
) -> Callable[..., AbstractAsyncContextManager[Site]]:
    """Makes the test's site; takes the settings that ``harness.site.site`` takes."""
    return partial(site, tmp_path, broker.url, ledger_dsn)
