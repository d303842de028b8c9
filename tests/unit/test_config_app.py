"""The application is found beside the configuration, and fits it, or the error says what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acklast import App
from acklast.config import load_app
from acklast.errors import ConfigError, Exit
from harness.configs import changed, read

HANDLERS = """
from acklast import App
app = App()

@app.job("cleanup.v1", lane="cleanup")
async def cleanup(payload: dict) -> None: ...

@app.job("reminder.v1", lane="rent-reminders")
async def remind(payload: dict) -> None: ...
"""


@pytest.fixture(autouse=True)
def _imports_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def loaded(tmp_path: Path, handlers: str | None = HANDLERS, app: str = "handlers:app") -> App:
    if handlers is not None:
        (tmp_path / "handlers.py").write_text(handlers)
    return load_app(read(tmp_path, changed("handlers:app", app)))


def complaint(tmp_path: Path, handlers: str | None = HANDLERS, app: str = "handlers:app") -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, handlers, app)
    assert caught.value.exit is Exit.CONFIG
    return f"{caught.value.what}\n{caught.value.remedy}"


def test_the_application_beside_the_configuration_is_found(tmp_path: Path) -> None:
    app = loaded(tmp_path)
    assert app.lanes() == {"cleanup", "rent-reminders"}


def test_a_dotted_module_is_found(tmp_path: Path) -> None:
    package = tmp_path / "jobs_of_ours"
    package.mkdir()
    (package / "handlers.py").write_text(HANDLERS)
    assert loaded(tmp_path, None, "jobs_of_ours.handlers:app").lanes() == {"cleanup", "rent-reminders"}


def test_a_module_that_is_not_there_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    told = complaint(tmp_path, None)
    assert f"'handlers' is not found, neither in {tmp_path} nor installed" in told
    assert "Put handlers.py beside" in told


def test_a_module_that_the_application_needs_is_another_error(tmp_path: Path) -> None:
    told = complaint(tmp_path, "import not_there_at_all\n")
    assert "imports 'not_there_at_all', which is not installed" in told
    assert "handlers.py:1" in told


@pytest.mark.parametrize(
    ("handlers", "told"),
    [
        ("\n1 / 0\n", "ZeroDivisionError: division by zero"),
        ("\ndef broken(:\n", "SyntaxError"),
        ("\nraise SystemExit(0)\n", "SystemExit"),
    ],
)
def test_an_application_that_fails_is_told_with_its_line(tmp_path: Path, handlers: str, told: str) -> None:
    said = complaint(tmp_path, handlers)
    assert told in said
    assert "handlers.py:2" in said


def test_an_attribute_that_is_not_there_is_named(tmp_path: Path) -> None:
    told = complaint(tmp_path, app="handlers:application")
    assert "has no attribute 'application'" in told


def test_something_that_is_no_app_is_named(tmp_path: Path) -> None:
    assert "'handlers:cleanup' is a function, not an acklast.App" in complaint(
        tmp_path, app="handlers:cleanup"
    )


def test_lanes_and_handlers_must_meet(tmp_path: Path) -> None:
    told = complaint(tmp_path, HANDLERS.replace('lane="cleanup"', 'lane="clean-up"'))
    assert "lane 'clean-up' has handlers and no configuration: add [lanes.clean-up]" in told
    assert "lane 'cleanup' is configured and has no handler" in told
    assert "rent-reminders" not in told


def test_a_lane_that_reconciles_needs_handlers_that_can(tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    config = read(tmp_path, changed("concurrency = 3", 'on_unknown = "reconcile"'))
    with pytest.raises(ConfigError) as caught:
        load_app(config)
    assert "job type 'reminder.v1' of lane 'rent-reminders' has no reconcile" in caught.value.what
