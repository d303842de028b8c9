"""Finding the application: the module beside the configuration that says which code runs which job."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Set
from types import ModuleType
from typing import TYPE_CHECKING

from acklast.config.models import Config
from acklast.errors import ConfigError

if TYPE_CHECKING:
    from acklast.handlers.app import App


def load_app(config: Config) -> App:
    """Import ``config.app``; the configuration's directory goes first on ``sys.path``.

    Raises:
        ConfigError: the module or the attribute is not there, it fails while it is imported, it is no
            ``App``, or its lanes and the configured ones differ.
    """
    from acklast.handlers.app import App

    name, _, attribute = config.app.partition(":")
    module = _module(config, name)
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigError(
            f"Module {name!r} ({module.__file__}) has no attribute {attribute!r}",
            f"Define it there ({attribute} = App()) or correct app = {config.app!r} in {config.path}",
        )
    if not isinstance(found, App):
        raise ConfigError(
            f"{config.app!r} is a {type(found).__name__}, not an acklast.App",
            f"Point app in {config.path} at the App that the handlers are registered with",
        )
    check_lanes(config, found.lanes())
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
                f"The application module {error.name!r} is not found, neither in {directory} nor installed",
                f"Put {error.name}.py beside {config.path}, install it, or correct app = {config.app!r}",
            ) from None
        raise ConfigError(
            f"Module {name!r} imports {error.name!r}, which is not installed ({_where(error)})",
            "Install it into the environment that runs acklast",
        ) from error
    except Exception as error:
        raise ConfigError(
            f"Module {name!r} fails while it is imported: {type(error).__name__}: {error} ({_where(error)})",
            f'Correct it; python -c "import {name}" in {directory} shows the whole traceback',
        ) from error


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    return f"{ours[-1].filename}:{ours[-1].lineno}" if ours else "unknown place"


def check_lanes(config: Config, handled: Set[str]) -> None:
    """Every lane needs handlers, and every handler's lane a configuration.

    Raises:
        ConfigError: naming all lanes that lack one of them.
    """
    lines = [
        f"  lane {lane!r} has handlers and no configuration: add [lanes.{lane}] to {config.path.name}"
        for lane in sorted(handled - set(config.lanes))
    ] + [
        f"  lane {lane!r} is configured and has no handler: add @app.job(..., lane={lane!r}) or remove it"
        for lane in sorted(set(config.lanes) - handled)
    ]
    if lines:
        raise ConfigError(
            f"The lanes of {config.app!r} and of {config.path} differ:\n" + "\n".join(lines),
            "Correct each line",
        )
