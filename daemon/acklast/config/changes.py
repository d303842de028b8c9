"""What a changed configuration comes to for a process that runs: what it follows, and what waits. Pure.

Every key of every table is in here, so that none is added without a decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from acklast.config.dead import Dead
from acklast.config.health import Health
from acklast.config.models import Breaker, Budget, Config, Drain, Lane, Log, Relay
from acklast.config.quota import Quota
from acklast.config.section import Section
from acklast.config.servers import Broker, LedgerServer

S = TypeVar("S", bound=Section)


class When(StrEnum):
    """When a changed key counts."""

    LIVE = "live"
    """At once."""
    CONNECTION = "connection"
    """From the next connection on: they are read anew for each (``rotation``)."""
    RESTART = "restart"
    WITHIN = "within"
    """It is a table, whose own keys say; one that comes or goes needs a restart."""


def _keys(*, live: str = "", connection: str = "", restart: str = "", within: str = "") -> dict[str, When]:
    given = {When.LIVE: live, When.CONNECTION: connection, When.RESTART: restart, When.WITHIN: within}
    return {name: when for when, names in given.items() for name in names.split()}


KEYS: Final[Mapping[type[Section], Mapping[str, When]]] = {
    Config: _keys(
        within="broker ledger drain relay health dead log budgets lanes",
        restart="namespace instance version state_dir app declare wait_buckets_s fan_out schedules",
    ),
    Broker: _keys(
        connection="urls ca_file cert_file key_file auth",
        restart="heartbeat_s connect_timeout_s publish_timeout_s longest_unacked_s management_url receiver",
    ),
    LedgerServer: _keys(
        connection="dsn",
        restart="lease_s pool_size allow_unsafe_server prune_every_s reconcile_every_s",
    ),
    Drain: _keys(live="deadline_s"),
    Relay: _keys(restart="enabled poll_s"),
    Health: _keys(restart="listen relay_listen scheduler_listen allow_remote"),
    # What may be shown is read by the commands that show it.
    Dead: _keys(live="redact", restart="max_redrives"),
    Log: _keys(live="level", restart="format"),
    Budget: _keys(live="quota headroom concurrency", restart="burst arrival_bound_s", within="breaker"),
    Breaker: _keys(restart="after pause_s pause_cap_s"),
    Lane: _keys(
        live="concurrency weight prefetch max_attempts max_rate_limited backoff_base_s backoff_cap_s"
        " retry_after_cap_s on_unknown timeout_s keep_done_s keep_dead_s keep_payload_s redact",
        restart="budget fair_by lookahead custody http",
    ),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One key that is different."""

    key: str
    old: Any
    new: Any

    def shown(self) -> dict[str, Any]:
        """Both values, fit for a log. None of a key that is followed at once can be a secret."""
        return {"old": _plain(self.old), "new": _plain(self.new)}


@dataclass(frozen=True, slots=True)
class Changes:
    """What is different. Of what waits only the names are told: it may be secret."""

    live: tuple[Change, ...] = ()
    connection: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


def diff(old: Config, new: Config) -> Changes:
    """What of ``new`` is otherwise than in ``old``, by when it counts."""
    found = list(_differences("", old, new))
    return Changes(
        live=tuple(change for when, change in found if when is When.LIVE),
        connection=tuple(change.key for when, change in found if when is When.CONNECTION),
        restart=tuple(change.key for when, change in found if when is When.RESTART),
    )


def merged(old: S, new: S) -> S:
    """``old`` with all of ``new`` that needs no restart."""
    update: dict[str, Any] = {}
    for name, when in _whens(old, new).items():
        was, now = getattr(old, name), getattr(new, name)
        if when is When.RESTART:
            continue
        if when is not When.WITHIN:
            update[name] = now
        elif isinstance(was, Mapping):
            update[name] = {key: merged(one, now[key]) if key in now else one for key, one in was.items()}
        else:
            update[name] = merged(was, now)
    return old.model_copy(update=update)


def _differences(place: str, old: Section, new: Section) -> Iterator[tuple[When, Change]]:
    for name, when in _whens(old, new).items():
        key, was, now = f"{place}{name}", getattr(old, name), getattr(new, name)
        if was == now:
            continue
        if when is not When.WITHIN:
            yield when, Change(key, was, now)
        elif isinstance(was, Mapping):
            yield from _of_tables(key, was, now)
        else:
            yield from _differences(f"{key}.", was, now)


def _of_tables(
    key: str, old: Mapping[str, Section], new: Mapping[str, Section]
) -> Iterator[tuple[When, Change]]:
    for name in sorted({*old, *new}):
        if name in old and name in new:
            yield from _differences(f"{key}.{name}.", old[name], new[name])
        else:
            yield When.RESTART, Change(f"{key}.{name}", None, None)


def _whens(old: Section, new: Section) -> Mapping[str, When]:
    """The table's keys; fewer are followed at once where one of them hangs together with one that waits."""
    keys = KEYS[type(old)]
    if isinstance(old, Lane) and isinstance(new, Lane) and old.http != new.http:
        # The request and the lane's times are checked against each other: half of them could contradict.
        return dict.fromkeys(keys, When.RESTART)
    if isinstance(old, Budget) and isinstance(new, Budget) and None in (old.concurrency, new.concurrency):
        # Whether calls in flight are counted at all is settled when the permits are taken.
        return {**keys, "concurrency": When.RESTART}
    return keys


def _plain(given: Any) -> Any:
    match given:
        case Quota():
            return str(given)
        case tuple():
            return list(given)
        case _:
            return given
