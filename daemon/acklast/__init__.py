"""A RabbitMQ consumer daemon that records every job in Postgres before it acks."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from acklast.errors import Interrupted, Permanent, RateLimited, Transient, Unknown

if TYPE_CHECKING:
    from acklast.handlers.app import App
    from acklast.handlers.context import Context
    from acklast.handlers.firing import Firing

__all__ = [
    "App",
    "Context",
    "Firing",
    "Interrupted",
    "Permanent",
    "RateLimited",
    "Transient",
    "Unknown",
    "__version__",
]

try:
    __version__ = version("acklast")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """App and Context on first use: they bring pydantic and structlog, which a command may not need.

    Every module of the package imports this one first, so an import at its top would also be a cycle.
    """
    if name == "App":
        from acklast.handlers.app import App

        return App
    if name == "Context":
        from acklast.handlers.context import Context

        return Context
    if name == "Firing":
        from acklast.handlers.firing import Firing

        return Firing
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
