"""What is wrong with a configuration: every problem at once, one line each, no secret in any of them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from acklast.config.dead import Dead
from acklast.config.fan_out import FanOut
from acklast.config.health import Health
from acklast.config.http import Http
from acklast.config.models import Breaker, Budget, Config, Drain, Lane, Log, Relay
from acklast.config.schedules import Schedule
from acklast.config.secrets import masked
from acklast.config.servers import Broker, LedgerServer
from acklast.errors import ConfigError

Key: TypeAlias = tuple[str | int, ...]
T = TypeVar("T")

REMEDY = "Correct each line; docs/reference/configuration.md describes every key"

_SECTIONS: dict[Key, type[BaseModel]] = {
    (): Config,
    ("broker",): Broker,
    ("ledger",): LedgerServer,
    ("relay",): Relay,
    ("health",): Health,
    ("drain",): Drain,
    ("dead",): Dead,
    ("log",): Log,
}
_ALSO: dict[Key, tuple[str, ...]] = {("broker",): ("url", "url_file"), ("ledger",): ("dsn_file",)}
# Whole sections too: somebody may write broker = "amqp://user:password@host".
_SECRET: frozenset[Key] = frozenset(
    {("broker",), ("ledger",), ("broker", "urls"), ("broker", "url"), ("ledger", "dsn")}
)
# Of an HTTP lane's table, what cannot hold a secret.
_PLAIN: frozenset[Key] = frozenset(
    (key,) for key in Http.model_fields if key.endswith(("_s", "_file", "method", "status"))
)
_MISSING: dict[Key, str] = {
    ("broker", "urls"): "is missing: set broker.urls, broker.url_file or ACKLAST_BROKER_URL",
    ("ledger", "dsn"): "is missing: set ledger.dsn, ledger.dsn_file or ACKLAST_LEDGER_DSN",
    ("app",): 'is missing: name the handlers as "module:attribute", for example app = "handlers:app"',
    ("lanes",): "is missing: at least one table [lanes.<name>]",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong. ``given`` is as it may be shown, or None where there is none or it is secret."""

    source: str
    key: str
    given: str | None
    valid: str

    def line(self) -> str:
        place = f"{self.source}: {self.key}" if self.key else self.source
        return f"{place} = {self.given}: {self.valid}" if self.given is not None else f"{place} {self.valid}"


class InvalidConfig(ConfigError):  # noqa: N818 - named for what is true, not for being an error
    """Every problem of one configuration, each a line of ``what``."""

    def __init__(self, path: Path, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem.line()}" for problem in self.problems)
        super().__init__(f"the configuration {path} is not valid:\n{lines}", REMEDY)


def dotted(key: Key) -> str:
    """``("broker", "urls", 0)`` as ``broker.urls[0]``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")


def known_keys(section: Key) -> tuple[str, ...]:
    """The keys that may stand in a section; empty where the section itself is unknown."""
    match section:
        case ("lanes", _):
            return tuple(Lane.model_fields)
        case ("budgets", _, "breaker"):
            return tuple(Breaker.model_fields)
        case ("lanes", _, "http"):
            return tuple(field.alias or name for name, field in Http.model_fields.items())
        case ("fan_out", _):
            return tuple(FanOut.model_fields)
        case ("budgets", _):
            return tuple(Budget.model_fields)
        case ("schedules", _):
            return (*Schedule.model_fields, "sql_file", "dsn_file")
        case _:
            model = _SECTIONS.get(section)
            return (*model.model_fields, *_ALSO.get(section, ())) if model else ()


def meant(name: str, known: Iterable[str]) -> str:
    """``did you mean ...``, or the list of what there is."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known here: {', '.join(known)}" if known else "nothing may stand here"


def shown(key: Key, given: Any) -> str | None:
    """A value fit for an error line; None where it is or may be secret, or is too large to help."""
    match given:
        case bool():
            return str(given).lower()
        case int() | float():
            return str(given)
        case str() if not _SECRET.isdisjoint((key, key[:2])) or _in_request(key) or _is_dsn(key):
            return None
        case str():
            text = masked(given) if "://" in given else given
            return json.dumps(text if len(text) <= 100 else f"{text[:97]}...", ensure_ascii=False)
        case _:
            return None


def _in_request(key: Key) -> bool:
    """Whether a value is of a request: a token may stand there that should be named in ``secrets``."""
    return key[:1] == ("lanes",) and key[2:3] == ("http",) and key[3:4] not in _PLAIN


def _is_dsn(key: Key) -> bool:
    """Whether a value is the address of a schedule's rows, or stands where a whole schedule should."""
    return key[:1] == ("schedules",) and key[2:3] in ((), ("dsn",))


def problems_of(
    error: ValidationError,
    file: str,
    origins: Mapping[Key, str],
    renamed: Mapping[Key, Key],
    reported: Set[Key],
) -> list[Problem]:
    """pydantic's errors as problems.

    ``origins`` names the environment variable that set a key, if one did; ``renamed`` says which key the
    value of another came from (``broker.urls`` from ``broker.url_file``); what is ``reported``
    is not said again.
    """
    found = []
    for key, given, valid in _flat(error):
        if any(key[:n] in reported for n in range(2, len(key) + 1)):
            continue
        known_as = _nearest(key, renamed) or key
        variable = _nearest(known_as, origins)
        place = "" if variable else dotted(known_as)
        found.append(Problem(variable or file, place, shown(key, given), valid))
    return found


def _nearest(key: Key, mapping: Mapping[Key, T]) -> T | None:
    """What the mapping holds for the key, or for the part of it that comes closest."""
    return next((mapping[key[:n]] for n in range(len(key), 0, -1) if key[:n] in mapping), None)


def _flat(error: ValidationError) -> Iterable[tuple[Key, Any, str]]:
    for detail in error.errors(include_url=False):
        key: Key = tuple(part for part in detail["loc"] if part != "[key]")
        match detail["type"]:
            case "default_factory_not_called":  # follows from an error that is reported itself
                continue
            case "several":
                for below, given, valid in detail["ctx"]["problems"]:
                    yield (*key, *below.split(".")), given, valid
            case "extra_forbidden":  # what was meant is unknown, and so is whether the value is secret
                yield key, None, f"is not a known key: {meant(str(key[-1]), known_keys(key[:-1]))}"
            case "missing":
                yield key, None, _MISSING.get(key, "is missing")
            case "too_short":
                yield key, None, f"must name at least {detail['ctx']['min_length']}"
            case "model_type" | "dict_type" | "mapping_type" | "model_attributes_type":
                yield key, None, f"must be a table, [{dotted(key)}]"
            case _:
                yield key, detail["input"], _plain(detail["msg"])


def _plain(message: str) -> str:
    """pydantic's sentence in the words of the other lines."""
    message = message.removeprefix("Value error, ").replace("Input should be", "must be")
    return re.sub(r", (?:unable to parse|unable to interpret|got a number).*", "", message)
