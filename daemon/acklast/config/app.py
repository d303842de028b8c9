"""Finding the application: the module beside the configuration that says which code runs which job."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from types import ModuleType

from acklast.config.models import Config
from acklast.errors import ConfigError
from acklast.handlers.app import App
from acklast.policy import OnUnknown


def load_app(config: Config) -> App:
    """Import ``config.app``; the configuration's directory goes first on ``sys.path``.

    Raises:
        ConfigError: the module or the attribute is not there, it fails while it is imported, it is no
            ``App``, or it does not fit the configured lanes.
    """
    name, _, attribute = config.app.partition(":")
    module = _module(config, name)
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigError(
            f"module {name!r} ({module.__file__}) has no attribute {attribute!r}",
            f"Define it there ({attribute} = App()) or correct app = {config.app!r} in {config.path}",
        )
    if not isinstance(found, App):
        raise ConfigError(
            f"{config.app!r} is a {type(found).__name__}, not an acklast.App",
            f"Point app in {config.path} at the App that the handlers are registered with",
        )
    check_fit(config, found)
    return found


def _module(config: Config, name: str) -> ModuleType:
    directory = str(config.path.parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"the application module {error.name!r} is not found, neither in {directory} nor installed",
                f"Put {error.name}.py beside {config.path}, install it, or correct app = {config.app!r}",
            ) from None
        raise ConfigError(
            f"module {name!r} imports {error.name!r}, which is not installed ({_where(error)})",
            "Install it into the environment that runs acklast",
        ) from error
    except (Exception, SystemExit) as error:  # a script that was meant to be run ends itself
        raise ConfigError(
            f"module {name!r} fails while it is imported: {type(error).__name__}: {error} ({_where(error)})",
            f'Correct it; python -c "import {name}" in {directory} shows the whole traceback',
        ) from error


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    return f"{ours[-1].filename}:{ours[-1].lineno}" if ours else "unknown place"


def check_fit(config: Config, app: App) -> None:
    """Every lane needs handlers, every handler a configured lane, a lane that reconciles a ``reconcile``.

    Raises:
        ConfigError: naming everything that is missing.
    """
    lines = [f"  {line}" for line in _misfits(config, app)]
    if lines:
        raise ConfigError(
            f"the application {config.app!r} and {config.path} do not fit:\n" + "\n".join(lines),
            "Correct each line",
        )


def _misfits(config: Config, app: App) -> Iterator[str]:
    handled, configured = app.lanes(), set(config.lanes)
    for lane in sorted(handled - configured):
        yield f"lane {lane!r} has handlers and no configuration: add [lanes.{lane}] to {config.path.name}"
    for lane in sorted(configured - handled):
        yield f"lane {lane!r} is configured and has no handler: add @app.job(..., lane={lane!r}) or remove it"
    for job in app.jobs():
        asks = job.lane in configured and config.lanes[job.lane].on_unknown is OnUnknown.RECONCILE
        if asks and job.reconcile is None:
            yield (
                f"job type {job.name!r} of lane {job.lane!r} has no reconcile, which on_unknown asks for:"
                f" add @app.reconcile({job.name!r}) or choose another on_unknown"
            )
