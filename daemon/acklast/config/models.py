"""The configuration as values: frozen, complete, checked. ``load`` makes them from a file and the
environment.

Every number is bounded here, so that nothing behind the configuration has to ask whether it makes sense.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from acklast import __version__
from acklast.config.buckets import WaitBucketsS
from acklast.config.dead import Dead, RedactPaths
from acklast.config.fair import FairBy, parse_fair_by
from acklast.config.fan_out import FanOut, check_fan_outs
from acklast.config.health import Health
from acklast.config.http import Http
from acklast.config.quota import Quota, parse_quota
from acklast.config.schedules import Schedule, unknown_lanes
from acklast.config.section import PositiveS, Section
from acklast.config.servers import Broker, LedgerServer
from acklast.policy import BreakerRules, OnUnknown, Policy
from acklast_topology.ladder import BUCKETS_S
from acklast_topology.names import NAME_RULE, Names, valid_name
from acklast_topology.plan import Plan, plan_for

DAY_S = 86_400.0
MOST_AT_ONCE = 10_000
"""The highest concurrency of a lane."""
_POLICY = Policy()
_BREAKER = BreakerRules()
_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_VERSION_MAX = 100
_APP = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")


def _name(value: str) -> str:
    if not valid_name(value):
        raise ValueError(f"must be {NAME_RULE}")
    return value


def _instance(value: str) -> str:
    # The name becomes part of a file name in the state directory.
    if _INSTANCE.match(value) is None:
        raise ValueError(
            "must be 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
        )
    return value


def _version(value: str) -> str:
    # It stands beside every attempt, and is told in lists with others.
    if not 0 < len(value) <= _VERSION_MAX or not value.isprintable() or " " in value:
        raise ValueError(f"must be 1 to {_VERSION_MAX} printable characters without a space")
    return value


def _app(value: str) -> str:
    if _APP.match(value) is None:
        raise ValueError('must be "module:attribute", for example "handlers:app"')
    return value


def _quota(value: Any) -> Any:
    return parse_quota(value) if isinstance(value, str) else value


def _fair_by(value: Any) -> Any:
    return parse_fair_by(value) if isinstance(value, str) else value


Name = Annotated[str, AfterValidator(_name)]
PositiveInt = Annotated[int, Field(ge=1)]


def derived_prefetch(concurrency: int) -> int:
    """The most deliveries to hold for ``concurrency`` handlers; how many are held follows the pace."""
    return max(1000, 2 * concurrency)


class Declare(StrEnum):
    """What a daemon may do to the broker's objects."""

    APPLY = "apply"
    """Declare what is missing, then verify."""
    VERIFY = "verify"
    """Verify only: for a broker user without the configure permission."""


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    AUTO = "auto"
    """``console`` on a terminal, ``json`` elsewhere."""
    JSON = "json"
    CONSOLE = "console"


class Custody(StrEnum):
    """Who has the message of a job that is open."""

    BROKER = "broker"
    """The broker alone."""
    LEDGER = "ledger"
    """The ledger too, until the job is final: what the broker loses is sent again."""


class Drain(Section):
    deadline_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30.0


class Relay(Section):
    """Whether this daemon publishes what is promised in the outbox, and how often it looks."""

    enabled: bool = True
    poll_s: PositiveS = 0.25


class Log(Section):
    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.AUTO


class Breaker(Section):
    """When a budget's downstream counts as down, and how long it is left alone then."""

    after: Annotated[int, Field(ge=0)] = _BREAKER.after
    pause_s: PositiveS = _BREAKER.pause_s
    pause_cap_s: PositiveS = _BREAKER.pause_cap_s

    def rules(self) -> BreakerRules:
        """The same for the breaker itself."""
        return BreakerRules(self.after, self.pause_s, max(self.pause_s, self.pause_cap_s))


class Budget(Section):
    """A downstream's quota, shared by the lanes that name it and by every daemon."""

    quota: Annotated[Quota, BeforeValidator(_quota)]
    headroom: Annotated[float, Field(ge=0, lt=1)] = 0.0
    concurrency: PositiveInt | None = None
    burst: PositiveInt | None = None
    arrival_bound_s: Annotated[float, Field(ge=0, le=3600)] = 0.25
    breaker: Breaker = Breaker()

    def ours(self) -> Quota:
        """The part of the quota that is not left for others."""
        return self.quota.without(self.headroom)


class Lane(Section):
    """One lane: how many handlers run at once, what paces them, how failures are answered, what is kept."""

    concurrency: Annotated[int, Field(ge=1, le=MOST_AT_ONCE)] = 10
    budget: str | None = None
    weight: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    fair_by: Annotated[FairBy | None, BeforeValidator(_fair_by)] = None
    lookahead: Annotated[int, Field(ge=10, le=50_000)] = 500
    prefetch: Annotated[int, Field(ge=1, le=65_535)] = Field(
        default_factory=lambda data: derived_prefetch(data["concurrency"])
    )
    max_attempts: PositiveInt = _POLICY.max_attempts
    max_rate_limited: Annotated[int, Field(ge=0)] = _POLICY.max_rate_limited
    backoff_base_s: PositiveS = _POLICY.backoff_base_s
    backoff_cap_s: PositiveS = _POLICY.backoff_cap_s
    retry_after_cap_s: PositiveS = _POLICY.retry_after_cap_s
    on_unknown: OnUnknown = _POLICY.on_unknown
    timeout_s: PositiveS = _POLICY.timeout_s
    keep_done_s: PositiveS = 30 * DAY_S
    keep_dead_s: PositiveS = 90 * DAY_S
    keep_payload_s: PositiveS = Field(default_factory=lambda data: data["keep_dead_s"])
    custody: Custody = Custody.BROKER
    redact: RedactPaths = ()
    http: Http | None = None
    """The request by which the lane's jobs are done, where no Python does them."""

    @field_validator("budget")
    @classmethod
    def _budget_exists(cls, budget: str | None, info: ValidationInfo) -> str | None:
        # The context is the file's budgets: a lane cannot see its neighbours otherwise.
        if budget is not None and info.context is not None and budget not in info.context:
            known = ", ".join(sorted(info.context)) or "none is defined"
            raise ValueError(f"must be one of the budgets: {known}")
        return budget

    def policy(self) -> Policy:
        """The lane's retry rules for ``decide``."""
        return Policy(
            max_attempts=self.max_attempts,
            max_rate_limited=self.max_rate_limited,
            backoff_base_s=self.backoff_base_s,
            backoff_cap_s=self.backoff_cap_s,
            retry_after_cap_s=self.retry_after_cap_s,
            on_unknown=self.on_unknown,
            timeout_s=self.timeout_s,
        )

    def longest_retry_s(self) -> float:
        """How long all counted attempts with their waits can take: a second copy may arrive that late."""
        return self.max_attempts * (max(self.backoff_cap_s, self.retry_after_cap_s) + self.timeout_s)

    @model_validator(mode="after")
    def _bounds_agree(self) -> Self:
        problems: list[tuple[str, Any, str]] = [
            (key, given, f"must be {rule}, {bound:g}")
            for key, given, fits, rule, bound in self._bounds()
            if not fits
        ]
        if self.http is not None:
            problems += self._http_fits(self.http)
        if problems:
            # One pydantic error carries them all; its own text is for whoever bypasses ``load``.
            text = "; ".join(f"{key} {valid}" for key, _, valid in problems)
            raise PydanticCustomError("several", "{text}", {"text": text, "problems": problems})
        return self

    def _http_fits(self, http: Http) -> Iterator[tuple[str, Any, str]]:
        if self.on_unknown is OnUnknown.RECONCILE:
            yield (
                "on_unknown",
                self.on_unknown.value,
                'must be "retry" or "hold": an HTTP lane has nothing to ask',
            )
        if http.timeout_s is not None and http.timeout_s > self.timeout_s:
            # The lane's own says how long a job may take with all its retries.
            yield (
                "http.timeout_s",
                http.timeout_s,
                f"must be at most the lane's timeout_s, {self.timeout_s:g}",
            )

    def _bounds(self) -> Iterator[tuple[str, float, bool, str, float]]:
        base_s, cap_s = self.backoff_base_s, self.backoff_cap_s
        yield "backoff_cap_s", cap_s, cap_s >= base_s, "at least backoff_base_s", base_s
        # A job forgotten before its last copy arrives would run again.
        done_s, retry_s = self.keep_done_s, self.longest_retry_s()
        yield "keep_done_s", done_s, done_s >= retry_s, "at least the longest that its retries take", retry_s
        # What is redriven goes through all its retries again: until it has, its letter is the way back.
        payload_s, dead_s = self.keep_payload_s, self.keep_dead_s
        again = "at least the longest that the retries of a redriven job take"
        yield "keep_dead_s", dead_s, dead_s >= retry_s, again, retry_s
        yield "keep_payload_s", payload_s, payload_s >= min(dead_s, retry_s), again, retry_s
        yield "keep_payload_s", payload_s, payload_s <= dead_s, "at most keep_dead_s", dead_s


class Config(Section):
    """Everything a daemon is told. Made by ``load``, which also checks that each lane's budget exists."""

    namespace: Name = "acklast"
    instance: Annotated[str, AfterValidator(_instance)] = Field(
        default_factory=socket.gethostname, validate_default=True
    )
    version: Annotated[str, AfterValidator(_version)] = __version__
    """The application's own: a letter that is tried again by another one may end otherwise."""
    state_dir: Path
    app: Annotated[str, AfterValidator(_app)] | None
    """None where every lane is an HTTP lane; ``load`` sees to it."""
    declare: Declare = Declare.APPLY
    wait_buckets_s: WaitBucketsS = BUCKETS_S
    broker: Broker
    ledger: LedgerServer
    drain: Drain = Drain()
    relay: Relay = Relay()
    health: Health = Health()
    dead: Dead = Dead()
    log: Log = Log()
    budgets: Mapping[Name, Budget] = Field(default_factory=dict)
    lanes: Annotated[Mapping[Name, Lane], Field(min_length=1)]
    fan_out: Mapping[Name, FanOut] = Field(default_factory=dict)
    schedules: Mapping[Name, Schedule] = Field(default_factory=dict)
    _path: Path = PrivateAttr(default=Path("acklast.toml"))

    @model_validator(mode="after")
    def _lanes_are_there(self) -> Self:
        check_fan_outs(self.fan_out, self.lanes)
        unknown_lanes(self.schedules, {*self.lanes, *self.fan_out})
        return self

    @property
    def names(self) -> Names:
        """The broker names of this namespace."""
        return Names(self.namespace)

    @property
    def path(self) -> Path:
        """The file that this was read from."""
        return self._path

    @property
    def fair_lanes(self) -> tuple[str, ...]:
        """The lanes that have fair queues."""
        return tuple(name for name, lane in self.lanes.items() if lane.fair_by is not None)

    @property
    def unfair_lanes(self) -> tuple[str, ...]:
        """The others."""
        return tuple(name for name, lane in self.lanes.items() if lane.fair_by is None)

    @property
    def fan_outs(self) -> Mapping[str, tuple[str, ...]]:
        """The lanes of each fan-out."""
        return {name: one.lanes for name, one in self.fan_out.items()}

    def plan(self) -> Plan:
        """What belongs on the broker for the configured lanes, and those that share a fan-out with one."""
        return plan_for(
            self.names, self.lanes, self.wait_buckets_s, fair=self.fair_lanes, fan_out=self.fan_outs
        )

    def read_from(self, path: Path) -> Self:
        """The same configuration, knowing its file: the application is found beside it."""
        copy = self.model_copy()
        copy._path = path
        return copy

    def only(self, lanes: list[str]) -> Self:
        """The same configuration with these lanes alone; each must be configured."""
        shared = {name: one for name, one in self.fan_out.items() if set(one.lanes) & set(lanes)}
        kept = {name: self.lanes[name] for name in lanes}
        return self.model_copy(update={"lanes": kept, "fan_out": shared})
