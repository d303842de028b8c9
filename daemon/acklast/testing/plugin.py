"""A pytest plugin with the worker as a fixture: ``pytest_plugins = ["acklast.testing.plugin"]``.

It imports nothing of the product before a test asks for the fixture. It is not registered as an entry point:
that would load it into every pytest run of an environment in which acklast is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest

if TYPE_CHECKING:
    from acklast.testing.worker import TestWorker

MakeWorker: TypeAlias = "Callable[..., TestWorker]"
"""What the fixture gives: takes what ``TestWorker`` takes."""

_MADE: Final = pytest.StashKey["list[TestWorker]"]()
_LINES: Final = 200
"""The most of a story in a report: its end."""


@pytest.fixture
def acklast_worker(request: pytest.FixtureRequest) -> Iterator[MakeWorker]:
    """Makes workers, which are closed when the test is over: ``worker = acklast_worker(app)``."""
    from acklast.testing.worker import TestWorker

    made: list[TestWorker] = request.node.stash.setdefault(_MADE, [])

    def make(*given: Any, **options: Any) -> TestWorker:
        made.append(TestWorker(*given, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Tell the story of a test that fails."""
    report: pytest.TestReport = yield  # type: ignore[assignment]  # what pluggy sends
    if report.failed:
        for worker in item.stash.get(_MADE, []):
            lines = worker.story().splitlines()
            report.sections.append(("acklast: what happened", "\n".join(lines[-_LINES:])))
    return report  # type: ignore[return-value]  # as pluggy wants it
