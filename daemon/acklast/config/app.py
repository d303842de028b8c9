"""Finding the application: the module beside the configuration that says which code runs which job."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from acklast.config.http import Http
from acklast.config.models import MOST_AT_ONCE, Config, Lane
from acklast.errors import ConfigError
from acklast.handlers.app import App, JobType
from acklast.policy import OnUnknown

if TYPE_CHECKING:
    from acklast.handlers.http_lane import HttpLane


def load_app(config: Config) -> App:
    """Import ``config.app``, if there is one, and add the HTTP lanes.

    The configuration's directory goes first on ``sys.path``.

    Raises:
        ConfigError: the module or the attribute is not there, it fails while it is imported, it is no
            ``App``, or it does not fit the configured lanes.
    """
    app = App() if config.app is None else _imported(config, config.app)
    check_fit(config, app)
    return app.with_lanes(_http_jobs(config))


def load_callable(config: Config, key: str, target: str) -> Callable[..., Any]:
    """Import the callable that ``key`` of the configuration names as ``target``.

    Raises:
        ConfigError: it is not there, its module fails while it is imported, or it cannot be called.
    """
    found = _attribute(config, key, target, "def {attribute}(firing)")
    if not callable(found):
        raise ConfigError(
            f"{target!r} is a {type(found).__name__}, which cannot be called",
            f"Point {key} in {config.path} at a function that yields rows",
        )
    return found  # type: ignore[no-any-return]


def load_rows(config: Config) -> None:
    """See that every callable that a schedule names is there.

    Raises:
        ConfigError: one is not.
    """
    for name, one in config.schedules.items():
        if one.rows is not None:
            load_callable(config, f"schedules.{name}.rows", one.rows)


def _attribute(config: Config, key: str, target: str, define: str) -> Any:
    name, _, attribute = target.partition(":")
    module = _module(config, name, key, target)
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigError(
            f"module {name!r} ({module.__file__}) has no attribute {attribute!r}",
            f"Define it there ({define.format(attribute=attribute)}) or correct {key} = {target!r}"
            f" in {config.path}",
        )
    return found


def _imported(config: Config, target: str) -> App:
    found = _attribute(config, "app", target, "{attribute} = App()")
    if not isinstance(found, App):
        raise ConfigError(
            f"{target!r} is a {type(found).__name__}, not an acklast.App",
            f"Point app in {config.path} at the App that the handlers are registered with",
        )
    return found


def _http_jobs(config: Config) -> Iterator[JobType]:
    for name, lane in config.lanes.items():
        if lane.http is not None:
            # Here and not above: the client library takes longer to import than all the rest, and most
            # commands and many daemons send nothing over HTTP.
            from acklast.handlers.http_lane import http_job

            yield http_job(http_lane(name, lane, lane.http))


def http_lane(name: str, lane: Lane, http: Http) -> HttpLane:
    """What a lane's table ``http`` comes to."""
    from acklast.handlers.http_lane import HttpLane, trusting
    from acklast.http.client import Connecting

    connecting = Connecting(
        pool=MOST_AT_ONCE,  # as many as slots let in, of which there may be more one day
        connect_s=http.connect_timeout_s,
        read_s=http.read_timeout_s,
        keep_alive_s=http.keep_alive_s,
        max_redirects=http.max_redirects,
        tls=trusting(str(http.ca_file)) if http.ca_file else None,
    )
    return HttpLane(
        lane=name,
        request=http.request(name),
        rules=http.rules(),
        connecting=connecting,
        idempotency_header=http.idempotency_header,
        excerpt_bytes=http.excerpt_bytes,
        timeout_s=http.timeout_s,
    )


def _module(config: Config, name: str, key: str, target: str) -> ModuleType:
    directory = str(config.path.parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"the module {error.name!r} is not found, neither in {directory} nor installed",
                f"Put {error.name}.py beside {config.path}, install it, or correct {key} = {target!r}",
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
    """Every lane needs handlers or a request, every handler a configured lane, a lane that reconciles a
    ``reconcile``.

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
    over_http = {name for name, lane in config.lanes.items() if lane.http is not None}
    for lane in sorted(handled & over_http):
        yield f"lane {lane!r} has handlers and a table [lanes.{lane}.http]: keep one of the two"
    for lane in sorted(handled - configured):
        yield f"lane {lane!r} has handlers and no configuration: add [lanes.{lane}] to {config.path.name}"
    for lane in sorted(configured - handled - over_http):
        yield (
            f"lane {lane!r} is configured and has no handler:"
            f" add @app.job(..., lane={lane!r}) or a table [lanes.{lane}.http], or remove it"
        )
    yield from _unable(config, app)


def check_reconciles(config: Config, app: App) -> None:
    """Every lane that reconciles needs a ``reconcile`` for each of its types.

    Raises:
        ConfigError: naming everything that is missing.
    """
    if lines := [f"  {line}" for line in _unable(config, app)]:
        raise ConfigError(
            f"the application {config.app!r} that runs and {config.path} do not fit:\n" + "\n".join(lines),
            "Correct each line, or restart with an application that fits",
        )


def _unable(config: Config, app: App) -> Iterator[str]:
    configured = set(config.lanes)
    for job in app.jobs():
        asks = job.lane in configured and config.lanes[job.lane].on_unknown is OnUnknown.RECONCILE
        if asks and job.reconcile is None:
            yield (
                f"job type {job.name!r} of lane {job.lane!r} has no reconcile, which on_unknown asks for:"
                f" add @app.reconcile({job.name!r}) or choose another on_unknown"
            )
