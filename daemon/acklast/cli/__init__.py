"""The ``acklast`` command."""

from __future__ import annotations

import logging
import sys
from typing import Final, NoReturn

from acklast.errors import Exit

_EXTRA: Final = frozenset(
    {
        "aiolimiter",
        "asyncpg",
        "cronsim",
        "opentelemetry",
        "pydantic",
        "rich",
        "structlog",
        "typer",
    }
)


def main() -> NoReturn:
    """Run the command line in ``sys.argv`` and exit with one of ``acklast.errors.Exit``."""
    try:
        from acklast.cli.root import run
        from acklast.cli.standard import use_streams
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        # A publisher installs acklast without the daemon, and gets the command all the same.
        sys.stderr.write(f"error: the command needs {error.name}, which is not installed\n")
        sys.stderr.write('  Install it with the daemon: pip install "acklast[daemon]"\n')
        sys.exit(Exit.CONFIG)
    use_streams()
    _quieten_client_libraries()
    sys.exit(run(sys.argv[1:]))


def _quieten_client_libraries() -> None:
    # What they log about a connection that fails is said by the command's own error; run sets its own levels.
    for name in ("aio_pika", "aiormq", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
