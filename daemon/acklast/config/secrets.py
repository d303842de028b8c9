"""Secrets: where they are read from, and how they are shown. Nothing here puts one into an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

_ESCAPED = "reserved characters in the password percent-encoded"
BROKER_URL_RULE = f'must be "amqp://user:password@host:5672/vhost" or amqps, {_ESCAPED}'
DSN_RULE = f'must be "postgresql://user:password@host:5432/database", {_ESCAPED}'
_END = re.compile(r"[/?#]")
_HOST = re.compile(r"(\[[0-9a-fA-F:.%\w]+\]|[^:\[\]]*)(:[0-9]{1,5})?\Z", re.ASCII)
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
    scheme, netloc, rest = _split(value.get_secret_value())
    if scheme not in ("amqp", "amqps") or not _fit_hosts(netloc) or not _host(netloc) or "@" in rest:
        raise ValueError(BROKER_URL_RULE)
    return value


def check_dsn(value: SecretStr) -> SecretStr:
    """Raises ValueError, without the value, where it is no Postgres URI. The driver reads the query."""
    scheme, netloc, rest = _split(value.get_secret_value())
    if scheme not in ("postgresql", "postgres") or not _fit_hosts(netloc) or "@" in rest.partition("?")[0]:
        raise ValueError(DSN_RULE)
    return value


def _split(url: str) -> tuple[str, str, str]:
    """Scheme, network location, and everything behind it."""
    scheme, separator, rest = url.partition("://")
    netloc = _END.split(rest, maxsplit=1)[0]
    return (scheme if separator else ""), netloc, rest[len(netloc) :]


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2].partition(":")[0]


def _fit_hosts(netloc: str) -> bool:
    """Whether each host, of one or several, has a port that is one.

    With an unescaped '/', '?' or '#' in it a password ends up where the port is, and the client libraries put
    that into their errors: it has to be seen here.
    """
    return all(_HOST.match(host) for host in netloc.rpartition("@")[2].split(","))


def secret_path(name: str, directory: Path, env: Mapping[str, str]) -> Path:
    """Where a ``*_file`` points: a bare name is a systemd credential where there are any."""
    credentials = env.get("CREDENTIALS_DIRECTORY")
    if credentials and "/" not in name:
        return Path(credentials) / name
    return directory / Path(name).expanduser()
