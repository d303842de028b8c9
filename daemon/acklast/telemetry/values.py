"""One environment variable as a value. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import unquote

from acklast.errors import ConfigError

Env = Mapping[str, str]
N = TypeVar("N", int, float)

_LONGEST_MS: Final = 86_400_000.0
"""A day. What is far longer no clock of a thread can wait for, and the thread would end."""


def text(env: Env, name: str) -> str:
    """An empty variable is an unset one."""
    return env.get(name, "").strip()


def flag(env: Env, name: str) -> bool:
    """True or false. Anything else is no guess at what was meant: the specification has it false, with a
    warning that nobody reads before the telemetry is missed.

    Raises:
        ConfigError: it is neither.
    """
    return (one_of(env, name, ("true", "false")) or "false") == "true"


def one_of(env: Env, name: str, valid: tuple[str, ...]) -> str | None:
    said = text(env, name).lower()
    if not said:
        return None
    if said not in valid:
        raise ConfigError(f"{name}={said} is not known", f"Use one of: {', '.join(valid)}")
    return said


def milliseconds(env: Env, name: str, default: float, least: float = 1.0) -> float:
    return number(env, name, default, least=least, most=_LONGEST_MS, unit=" of milliseconds")


def number(env: Env, name: str, default: N, *, least: float, most: float = math.inf, unit: str = "") -> N:
    said = text(env, name)
    if not said:
        return default
    try:
        read = type(default)(said)
    except ValueError:
        read = type(default)(-1)
    if not least <= read <= most:
        to = f"from {least:g} to {most:.9g}" if most < math.inf else f"of {least:g} or more"
        whole = "a whole number" if isinstance(default, int) else "a number"
        raise ConfigError(f"{name}={said} is not valid", f"Use {whole}{unit} {to}")
    return read


def pairs(env: Env, name: str, *, secret: bool = False) -> dict[str, str]:
    """``a=1,b=2``, percent-encoded as W3C Baggage has it."""
    found = {}
    for item in filter(None, (part.strip() for part in text(env, name).split(","))):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            shown = "an item" if secret else f"{item!r}"
            raise ConfigError(f"{name} has {shown} that is no pair", "Use KEY=VALUE,KEY=VALUE")
        found[unquote(key.strip())] = unquote(value.strip())
    return found
