"""The pytest plugin, in runs of its own, as a project has it. ``test_guide`` runs it without asyncio."""

from __future__ import annotations

import subprocess
import sys

import pytest

CONFTEST = 'pytest_plugins = ["acklast.testing.plugin"]'
HANDLERS = """
from acklast import App

app = App()

@app.job("mail.v1", lane="mail")
async def send(payload):
    pass
"""
TESTS = """
import pytest
from acklast import Transient
from handlers import app

def test_plain(acklast_worker):
    worker = acklast_worker(app)
    job = worker.publish("mail")
    worker.run_until_idle()
    job.assert_state("done")

async def test_async(acklast_worker):
    worker = acklast_worker(app)
    worker.publish("mail")
    worker.run_until_idle()
    worker.assert_states(done=1)

def test_fails(acklast_worker):
    worker = acklast_worker(app)
    worker.fault("mail", Transient("not_now"))
    job = worker.publish("mail", key="k-1")
    worker.run_until_idle()
    assert job.attempts == 7

def test_two_workers_that_are_closed_by_the_fixture(acklast_worker):
    for worker in [acklast_worker(app), acklast_worker(app, seed=1)]:
        worker.publish("mail")
        worker.run_until_idle()
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(handlers=HANDLERS)
    return pytester


TOLD = [
    "*acklast: what happened*",
    "0:00:00.000  test  published   [[]mail/k-1]",
    "*recorded: transient not_now: again in *",
    "*recorded: done: complete*",
]


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_the_fixture_works_beside_the_loops_of_others_and_tells_the_story_of_what_fails(
    project: pytest.Pytester, mode: str
) -> None:
    tests = TESTS if mode == "auto" else TESTS.replace("async def", "@pytest.mark.asyncio\nasync def")
    project.makepyfile(test_it=tests)
    # The option keeps pytest-asyncio from a warning of its own.
    scope = ("-o", "asyncio_default_fixture_loop_scope=function")
    ran = project.runpytest_subprocess("-W", "error", *scope, f"--asyncio-mode={mode}")
    ran.assert_outcomes(passed=3, failed=1)
    ran.stdout.fnmatch_lines(TOLD)


CODE = """
import sys, acklast.testing.plugin
print(*{"pydantic", "structlog", "aio_pika", "aiohttp", "acklast.delivery"} & set(sys.modules))
sys.modules["pytest"] = None
from acklast.testing import TestWorker, replies
"""


def test_the_plugin_brings_nothing_before_it_is_asked_and_the_worker_needs_no_pytest() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == []


def test_what_is_offered_is_there() -> None:
    import acklast.testing

    for name in acklast.testing.__all__:
        assert getattr(acklast.testing, name) is not None
    with pytest.raises(AttributeError, match="Nothing"):
        _ = acklast.testing.Nothing
