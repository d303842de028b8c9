"""``load``: a file and an environment become a ``Config``, or every reason why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from acklast.config.models import Config
from acklast.config.problems import InvalidConfig, Problem, meant, problems_of
from acklast.config.secrets import secret_path
from acklast.config.sources import (
    Draft,
    layered,
    read_lane_secrets,
    read_schedule_files,
    read_secrets,
    read_toml,
)
from acklast.config.tls import TLS_FILES
from acklast.errors import ConfigError


def load(path: Path, env: Mapping[str, str], *, instance: str | None = None) -> Config:
    """Read, complete and check a configuration. ``instance`` is the command line's and wins.

    Raises:
        ConfigError: with every problem, one per line, its key, its value unless secret, and what is valid.
    """
    path = path.absolute()
    draft = layered(read_toml(path), path.name, env)
    read_secrets(draft, path.parent, env)
    read_lane_secrets(draft, path.parent, env)
    read_schedule_files(draft, path.parent, env)
    _complete(draft, path.parent, env)
    if instance is not None:
        draft.values["instance"] = instance
        draft.origins["instance",] = "--instance"
    config, problems = _validated(draft)
    if config is None or draft.problems:
        raise InvalidConfig(path, [*draft.problems, *problems])
    return config.read_from(path)


def _validated(draft: Draft) -> tuple[Config | None, list[Problem]]:
    try:
        return Config.model_validate(draft.values, context=frozenset(draft.section("budgets"))), []
    except ValidationError as error:
        return None, problems_of(error, draft.file, draft.origins, draft.renamed, draft.reported)


def _complete(draft: Draft, directory: Path, env: Mapping[str, str]) -> None:
    """Fill in what depends on the machine, so that the models need no environment."""
    broker = draft.section("broker")
    draft.section("ledger")
    for key in TLS_FILES:
        if isinstance(given := broker.get(key), str):
            broker[key] = secret_path(given, directory, env)
    given = draft.values.get("state_dir")
    if given is None:
        draft.values["state_dir"] = default_state_dir(env)
    elif isinstance(given, str):
        draft.values["state_dir"] = directory / Path(given).expanduser()
    lanes = [lane for lane in draft.section("lanes").values() if isinstance(lane, dict)]
    tables = [lane["http"] for lane in lanes if isinstance(lane.get("http"), dict)]
    if tables and len(tables) == len(draft.section("lanes")):
        draft.values.setdefault("app", None)  # no lane is left that would need one
    for table in tables:
        if isinstance(given := table.get("ca_file"), str):
            table["ca_file"] = directory / Path(given).expanduser()


def default_state_dir(env: Mapping[str, str]) -> Path:
    """systemd's ``$STATE_DIRECTORY`` (the first of several), else the user's state directory (XDG)."""
    if systemd := env.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(systemd)
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    xdg = Path(env.get("XDG_STATE_HOME", ""))
    return (xdg if xdg.is_absolute() else home / ".local" / "state") / "acklast"


def select(config: Config, lanes: Sequence[str]) -> Config:
    """The configuration with these lanes alone; all of them where none is named.

    Raises:
        ConfigError: a lane is not configured.
    """
    unknown = [lane for lane in lanes if lane not in config.lanes]
    if unknown:
        raise ConfigError(
            f"no lane {unknown[0]!r} in {config.path}", meant(unknown[0], config.lanes).capitalize()
        )
    return config.only(list(dict.fromkeys(lanes))) if lanes else config
