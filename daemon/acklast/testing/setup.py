"""What a test gives its worker, made into the setting of a stage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pydantic import ValidationError

from acklast.config import Budget, Config, Lane, Quota, load, load_app
from acklast.config.app import http_lane
from acklast.config.models import Drain
from acklast.config.section import Section
from acklast.errors import ConfigError
from acklast.handlers.app import App, JobType
from acklast.http.request import Request
from acklast.pacing.budgets import Limits
from acklast.policy import OnUnknown
from acklast.testing.apps import watched
from acklast.testing.setting import LEASE_S, BudgetSetting, LaneSetting, Setting
from acklast_topology.ladder import BUCKETS_S

if TYPE_CHECKING:
    from acklast.testing.http import Responder

Settings: TypeAlias = Mapping[str, Any]
"""Keys as in ``acklast.toml``."""

S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
class Given:
    """What a worker runs with."""

    setting: Setting
    requests: list[Request] = field(default_factory=list)


def given(
    app: App | Config | Path | str,
    lanes: Mapping[str, Lane | Settings],
    budgets: Mapping[str, Budget | Settings],
    http: Mapping[str, Responder],
    workers: int,
    lease_s: float | None,
    drain_s: float | None,
) -> Given:
    """Read what a test says; see ``TestWorker``."""
    config = load(Path(app), {}) if isinstance(app, str | Path) else app if isinstance(app, Config) else None
    code = app if isinstance(app, App) else load_app(_known(config))
    known = dict(config.lanes) if config else {name: Lane() for name in sorted(code.lanes())}
    found = {name: _changed(Lane, f"lanes[{name!r}]", lane, lanes.get(name)) for name, lane in known.items()}
    _refuse("lane", lanes, found)
    _refuse("HTTP lane", http, [name for name, lane in found.items() if lane.http])
    quotas = dict(config.budgets) if config else {}
    quotas |= {
        name: _changed(Budget, f"budgets[{name!r}]", quotas.get(name), given)
        for name, given in budgets.items()
    }
    _refuse("budget", [lane.budget for lane in found.values() if lane.budget], quotas)
    _refuse_blind(code, found)
    requests: list[Request] = []
    code = watched(code.with_lanes(_http_jobs(found, http, requests)))
    code.prepare({name: lane.concurrency for name, lane in found.items()})
    return Given(_setting(code, config, found, quotas, workers, lease_s, drain_s), requests)


def _known(config: Config | None) -> Config:
    assert config is not None  # what is no App is a configuration, or the path of one
    return config


def _setting(
    code: App,
    config: Config | None,
    lanes: Mapping[str, Lane],
    budgets: Mapping[str, Budget],
    workers: int,
    lease_s: float | None,
    drain_s: float | None,
) -> Setting:
    usual_lease_s = config.ledger.lease_s if config else LEASE_S
    usual_drain_s = config.drain.deadline_s if config else Drain().deadline_s
    return Setting(
        code,
        {
            name: LaneSetting(one.policy(), one.concurrency, one.budget, one.weight)
            for name, one in lanes.items()
        },
        {name: _budget(budget, workers) for name, budget in budgets.items()},
        config.fan_outs if config else {},
        lease_s=usual_lease_s if lease_s is None else lease_s,
        drain_s=usual_drain_s if drain_s is None else drain_s,
        buckets_s=config.wait_buckets_s if config else BUCKETS_S,
    )


def _budget(budget: Budget, workers: int) -> BudgetSetting:
    """One daemon's part of a budget: what the exchange of permits comes to where all have as much to do."""
    quota = budget.ours()
    limits = Limits(
        budget.arrival_bound_s, budget.concurrency and max(1, budget.concurrency // workers), budget.burst
    )
    part = Quota(max(1, quota.count // workers), quota.period_s)
    return BudgetSetting(part, limits, budget.breaker.rules())


def _changed(kind: type[S], what: str, known: S | None, change: S | Settings | None) -> S:
    """What is known with what a test changes in it, checked as in a file.

    Raises:
        ConfigError: a setting is not known, or its value does not fit.
    """
    if change is None and known is not None:
        return known
    if isinstance(change, kind):
        return change
    before = {} if known is None else {name: getattr(known, name) for name in known.model_fields_set}
    try:
        return kind.model_validate({**before, **dict(change or {})})
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ConfigError(
            f"{what} is not valid: {wrong}", "Give what acklast.toml takes: docs/reference/configuration.md"
        ) from None


def _refuse(what: str, named: Iterable[str], known: Collection[str]) -> None:
    for name in named:
        if name not in known:
            raise ConfigError(f"no {what} {name!r} here", f"There is: {', '.join(known) or 'none'}")


def _refuse_blind(code: App, lanes: Mapping[str, Lane]) -> None:
    """A daemon does not start with a lane that reconciles and a handler that cannot."""
    for job in code.jobs():
        if lanes[job.lane].on_unknown is OnUnknown.RECONCILE and job.reconcile is None:
            raise ConfigError(
                f"job type {job.name!r} of lane {job.lane!r} has no reconcile, which on_unknown asks for",
                f"Add @app.reconcile({job.name!r}) or choose another on_unknown",
            )


def _http_jobs(
    lanes: Mapping[str, Lane], http: Mapping[str, Responder], requests: list[Request]
) -> Iterator[JobType]:
    for name, lane in lanes.items():
        if lane.http is None:
            continue
        if name not in http:
            raise ConfigError(
                f"lane {name!r} sends requests", f"Answer them: http={{{name!r}: replies(...)}}"
            )
        # Only here: the client library takes longer to import than all the rest.
        from acklast.handlers.http_lane import http_job
        from acklast.testing.http import ScriptedClient

        yield http_job(http_lane(name, lane, lane.http), ScriptedClient(http[name], requests))
