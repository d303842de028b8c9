"""One ``acklast.toml``, the environment over it, secrets from files: read and checked as a whole."""

from acklast.config.app import load_app
from acklast.config.load import load, select
from acklast.config.models import Budget, Config, Custody, Declare, Lane, LogFormat, LogLevel
from acklast.config.problems import InvalidConfig, Problem
from acklast.config.quota import Quota, parse_quota

__all__ = [
    "Budget",
    "Config",
    "Custody",
    "Declare",
    "InvalidConfig",
    "Lane",
    "LogFormat",
    "LogLevel",
    "Problem",
    "Quota",
    "load",
    "load_app",
    "parse_quota",
    "select",
]
