"""What exporters read by themselves of TLS and credentials: looked at before the start, because they go on
without a file that is not there, and fail of a provider that is not in a thread of their own.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from acklast.errors import ConfigError
from acklast.telemetry.values import Env
from acklast.telemetry.variables import Exporting, files_of, providers_of

_GROUP: Final = "opentelemetry_otlp_credential_provider"


def check_credentials(env: Env, exporting: Exporting) -> None:
    """
    Raises:
        ConfigError: a file cannot be read, or a credential provider gives nothing that can be used.
    """
    for name, path in files_of(env, exporting).items():
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{name}={path} cannot be read ({error.strerror})", "Name a PEM file that this user can read"
            ) from error
    for name, (kind, provider) in providers_of(env, exporting).items():
        _check_provider(name, kind, provider)


def _check_provider(name: str, kind: str, provider: str) -> None:
    installed = {one.name: one for one in entry_points(group=_GROUP)}
    if provider not in installed:
        known = f", or name one of: {', '.join(sorted(installed))}" if installed else ""
        raise ConfigError(
            f"{name}={provider} is no credential provider that is installed",
            f"Install the package that has it (entry point {_GROUP}){known}, or unset the variable",
        )
    wanted, found = _given(name, kind, installed[provider])
    if not isinstance(found, wanted):
        raise ConfigError(
            f"{name}={provider} gives a {type(found).__name__}, and no {wanted.__name__}",
            "Name a provider that is made for this protocol, or unset the variable",
        )


def _given(name: str, kind: str, provider: EntryPoint) -> tuple[type[Any], object]:
    """What the protocol needs, and what the provider gives."""
    try:
        if kind == "grpc":
            from grpc import ChannelCredentials as Wanted  # type: ignore[import-untyped]  # without types
        else:
            from requests import Session as Wanted
        return Wanted, provider.load()()
    except Exception as defect:
        # Not shown: what it says may have the secret in it.
        raise ConfigError(
            f"{name}={provider.name} fails with {type(defect).__name__}",
            "Put the provider right, or unset the variable",
        ) from defect
