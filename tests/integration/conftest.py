"""What the tests of the daemon as a process start from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from harness import Broker
from harness.site import RECEIVERS, Site, site


@pytest.fixture(params=RECEIVERS)
def receiver(request: pytest.FixtureRequest) -> str:
    """What the daemon reads its deliveries with: whoever asks for it runs once on each."""
    value: str = request.param
    return value


@pytest.fixture
def new_site(
    broker: Broker, ledger_dsn: str, tmp_path: Path, receiver: str
) -> Callable[..., AbstractAsyncContextManager[Site]]:
    """Makes the test's site; takes the settings that ``harness.site.site`` takes.

    Whoever uses it runs once on each receiver.
    """
    return partial(site, tmp_path, broker.url, ledger_dsn, receiver=receiver)
