"""The files for TLS that exporters read: looked at first, because the exporters go on without them."""

from __future__ import annotations

from pathlib import Path

from acklast.errors import ConfigError
from acklast.telemetry.variables import Env, Exporting, files_of


def check_files(env: Env, exporting: Exporting) -> None:
    """
    Raises:
        ConfigError: one of them cannot be read.
    """
    for name, path in files_of(env, exporting).items():
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{name}={path} cannot be read ({error.strerror})", "Name a PEM file that this user can read"
            ) from error
