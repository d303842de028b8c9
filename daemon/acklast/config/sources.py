"""Where values come from: the file, then the environment over it, then the files that hold secrets."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acklast.config.problems import Key, Problem, dotted, known_keys, meant
from acklast.config.secrets import secret_path
from acklast.errors import ConfigError

SHORT = {
    "ACKLAST_BROKER_URL": ("broker", "urls"),
    "ACKLAST_LEDGER_DSN": ("ledger", "dsn"),
    "ACKLAST_VERSION": ("version",),
}
PREFIX = "ACKLAST__"
_ONE = "ACKLAST_"
_NAMED = ("lanes", "budgets", "schedules")
# Each secret: the key that validation knows, then the other forms of it.
_ALTERNATIVES = {"broker": ("urls", "url", "url_file"), "ledger": ("dsn", "dsn_file")}


@dataclass(slots=True)
class Draft:
    """A configuration on its way: plain values, who set what, and what is already known to be wrong."""

    values: dict[str, Any]
    file: str
    origins: dict[Key, str] = field(default_factory=dict)
    renamed: dict[Key, Key] = field(default_factory=dict)
    """Where a value was not given under its own key: the key that people know it by."""
    reported: set[Key] = field(default_factory=set)
    """Keys whose value is missing or wrong for a reason that stands in ``problems`` already."""
    problems: list[Problem] = field(default_factory=list)

    def section(self, name: str) -> dict[str, Any]:
        """A section as a table; an empty stand-in where it is something else, which validation reports."""
        found = self.values.setdefault(name, {})
        return found if isinstance(found, dict) else {}

    def wrong(self, key: Key, given: str | None, valid: str) -> None:
        source = self.origins.get(key, self.file)
        self.problems.append(Problem(source, dotted(key) if source == self.file else "", given, valid))


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables.

    Raises:
        ConfigError: it cannot be read, or is not TOML; with line and column.
    """
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration file {path}", "Name it with --config or ACKLAST_CONFIG"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"the configuration {path} cannot be read: {error.strerror}", "Check its path and permissions"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: byte {error.start + 1} is not UTF-8", "Save the configuration as UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {_placed(str(error))}", "Correct the TOML syntax there") from None


def _placed(message: str) -> str:
    """``line 3, column 9: Invalid value`` from tomllib's ``Invalid value (at line 3, column 9)``."""
    match = re.fullmatch(r"(.*) \(at (line \d+, column \d+|end of document)\)", message, re.DOTALL)
    return f"{match[2]}: {match[1]}" if match else message


def layered(values: Mapping[str, Any], file: str, env: Mapping[str, str]) -> Draft:
    """The file's values with the environment's over them. An empty variable counts as not set."""
    draft = Draft(copy.deepcopy(dict(values)), file)
    overrides = _overrides(draft, env)
    for section, names in _ALTERNATIVES.items():
        if any(key[0] == section and key[1] in names for key in overrides if len(key) == 2):
            # One form of a secret in the environment replaces every form of it in the file.
            for name in names:
                draft.section(section).pop(name, None)
    for key, value in overrides.items():
        _put(draft.values, key, value)
    return draft


def _overrides(draft: Draft, env: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    found: dict[tuple[str, ...], str] = {}
    for variable, value in sorted(env.items()):
        key = SHORT.get(variable) or (_key_of(draft, variable) if variable.startswith(PREFIX) else None)
        if key is None and value and (meant_one := _slip(variable)):
            draft.problems.append(Problem(variable, "", None, f"sets nothing: write {meant_one}"))
        if key is None or not value:
            continue
        if key in found:
            draft.wrong(key, None, f"is set by {draft.origins[key]} and by {variable}: set one of them")
        found[key] = value
        draft.origins[key] = variable
    return found


def _slip(variable: str) -> str:
    """What a variable with too few underscores means: it would change nothing, without a word."""
    section, _, name = variable.removeprefix(_ONE).lower().partition("_")
    known = variable.startswith(_ONE) and name in known_keys((section,))
    return f"{PREFIX}{section}__{name}".upper() if known else ""


def _key_of(draft: Draft, variable: str) -> tuple[str, ...] | None:
    parts = variable.removeprefix(PREFIX).lower().split("__")
    if len(parts) > 1 and parts[0] in _NAMED:
        name = _named(draft, variable, parts[0], parts[1])
        return (parts[0], name, *parts[2:]) if name else None
    return tuple(parts)


def _named(draft: Draft, variable: str, section: str, written: str) -> str | None:
    """The lane or budget that a variable means: '-' is written '_' there. It must stand in the file.

    A variable with a slip in a lane's name would otherwise make a new lane and leave the real one as it was.
    """
    names = [name for name in draft.section(section) if name.replace("-", "_") == written]
    if len(names) == 1:
        return names[0]
    if names:
        valid = f"could mean each of {', '.join(sorted(names))}: set this in the file"
    else:
        valid = f"names no table [{section}.*] of the file: {meant(written, draft.section(section))}"
    draft.problems.append(Problem(variable, "", None, valid))
    return None


def _put(values: dict[str, Any], key: tuple[str, ...], value: str) -> None:
    for part in key[:-1]:
        values = values.setdefault(part, {})
        if not isinstance(values, dict):  # validation says that this must be a table
            return
    values[key[-1]] = value


def read_secrets(draft: Draft, directory: Path, env: Mapping[str, str]) -> None:
    """Make one value of each secret: a list of one of ``url``, the content of what a ``*_file`` names."""
    for section, (target, *others) in _ALTERNATIVES.items():
        table = draft.section(section)
        given = [name for name in (target, *others) if name in table]
        if len(given) > 1:
            draft.wrong((section, given[0]), None, f"is given besides {' and '.join(given[1:])}: keep one")
            draft.reported.add((section, target))
        for name in given[-1:]:
            value = table[name]
            if name.endswith("_file"):
                value = _secret(draft, (section, name), (section, target), directory, env)
            for form in others:
                table.pop(form, None)
            table[target] = value
            if name != target:
                draft.renamed[section, target] = (section, name)


def read_lane_secrets(draft: Draft, directory: Path, env: Mapping[str, str]) -> None:
    """Put the content of its file in the place of each secret that an HTTP lane names."""
    for lane, table in draft.section("lanes").items():
        http = table.get("http") if isinstance(table, dict) else None
        secrets = http.get("secrets") if isinstance(http, dict) else None
        if not isinstance(secrets, dict):
            continue  # validation says what it must be
        for name, pointer in secrets.items():
            key = ("lanes", lane, "http", "secrets", name)
            secrets[name] = _read(draft, pointer, key, key, directory, env)


def read_schedule_files(draft: Draft, directory: Path, env: Mapping[str, str]) -> None:
    """Put the content of its file in the place of each query and each DSN of a schedule."""
    for schedule, table in draft.section("schedules").items():
        if not isinstance(table, dict):
            continue  # validation says what it must be
        for name in ("sql", "dsn"):
            pointer = table.pop(f"{name}_file", None)
            if pointer is None:
                continue
            key, target = ("schedules", schedule, f"{name}_file"), ("schedules", schedule, name)
            if name in table:
                draft.wrong(target, None, f"is given besides {name}_file: keep one")
                continue
            draft.renamed[target] = key
            table[name] = _read(draft, pointer, key, target, directory, env)


def _secret(draft: Draft, key: Key, target: Key, directory: Path, env: Mapping[str, str]) -> str:
    pointer = draft.section(str(key[0]))[str(key[1])]
    return _read(draft, pointer, key, target, directory, env)


def _read(draft: Draft, pointer: Any, key: Key, target: Key, directory: Path, env: Mapping[str, str]) -> str:
    if not isinstance(pointer, str) or not pointer or "\0" in pointer:
        shown, problem, text = None, "must be a file's name", ""
    else:
        path = secret_path(pointer, directory, env)
        shown = str(path)
        text, problem = _content(path)
    if problem:
        draft.wrong(key, shown, problem)
        draft.reported.add(target)
    return text


def _content(path: Path) -> tuple[str, str]:
    """A file's text without the white space around it, and what is wrong with it, if anything."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        return "", f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        return "", "is not UTF-8"
    return text, "" if text else "is empty"
