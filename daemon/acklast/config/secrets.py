"""Secrets: where they are read from, and how they are shown. Nothing here puts one into an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

BROKER_URL_RULE = 'must be "amqp://user:password@host:5672/vhost" or the same with amqps'
DSN_RULE = 'must be "postgresql://user:password@host:5432/database"'
_USER = re.compile(r"[\w.%+-]*\Z", re.ASCII)


def masked(url: str) -> str:
    """A URL fit to be shown: scheme, user, host and path; the password and the query are left out.

    Where the text is too odd to tell the password from the rest (an unescaped '/' or '?' in it), only the
    scheme is shown.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "***"
    credentials, at, address = rest.rpartition("@")
    if not at:
        return f"{scheme}://{rest.partition('?')[0]}"
    user, colon, _ = credentials.partition(":")
    if "/" in credentials or "?" in credentials or _USER.match(user) is None:
        return f"{scheme}://***"
    return f"{scheme}://{user}{':***' if colon else ''}@{address.partition('?')[0]}"


def split_urls(value: Any) -> Any:
    """Several URLs in one text, as an environment variable or a file has them: commas or white space."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    return re.split(r"[,\s]+", value.strip(" ,\t\r\n")) if isinstance(value, str) else value


def check_broker_url(value: SecretStr) -> SecretStr:
    """Raises ValueError, without the value, where it is no AMQP URL."""
    try:
        parts = urlsplit(value.get_secret_value())
        fit = parts.scheme in ("amqp", "amqps") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is no number; its text may hold the password
        fit = False
    if not fit:
        raise ValueError(BROKER_URL_RULE)
    return value


def check_dsn(value: SecretStr) -> SecretStr:
    """Raises ValueError, without the value, where it is no Postgres URI. The driver reads the rest."""
    if not value.get_secret_value().startswith(("postgresql://", "postgres://")):
        raise ValueError(DSN_RULE)
    return value


def secret_path(name: str, directory: Path, env: Mapping[str, str]) -> Path:
    """Where a ``*_file`` points: a bare name is a systemd credential where there are any."""
    credentials = env.get("CREDENTIALS_DIRECTORY")
    if credentials and "/" not in name:
        return Path(credentials) / name
    return directory / Path(name).expanduser()
