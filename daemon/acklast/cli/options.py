"""The options that every command shares."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from acklast.config import Config, load

ConfigPath: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--config", "-c", envvar="ACKLAST_CONFIG", help="The configuration file.", show_default="acklast.toml"
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON with documented keys.")]

CONFIG = Path("acklast.toml")


def configured(path: Path, instance: str | None = None) -> Config:
    """The configuration at ``path`` with this process's environment over it.

    Raises:
        ConfigError: it cannot be used.
    """
    return load(path, os.environ, instance=instance)
