"""``acklast lanes pause|resume|set``: what operators ask of lanes and budgets, for the whole fleet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer

from acklast.cli.lane_target import (
    As,
    BudgetName,
    Followed,
    For,
    LaneName,
    Until,
    Why,
    make,
    operations_of,
    operator_of,
    reason_of,
    require,
    require_configured,
    target_of,
    until_of,
)
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.config import Config
from acklast.config.quota import Quota, parse_quota
from acklast.errors import Exit
from acklast.ledger.controls import Control, Kind, Target
from acklast.ledger.operate import Change, Operator, Wanted
from acklast.ledger.standing import read_standing
from acklast.pacing.controls import Controls, Refused, lower_count, lower_quota, lower_rate

_LIMITS = (Kind.QUOTA, Kind.CONCURRENCY)
_RATE_MIN = 1 / 86_400

MaybeWhy = Annotated[str, typer.Option("--why", "--reason", "-r", help="Why, for the history.")]


def pause(
    reason: Why,
    lane: LaneName = None,
    budget: BudgetName = None,
    for_: For = None,
    until: Until = None,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Start nothing more in a lane, or in all lanes of a budget, in every daemon. What runs ends by itself.

    Holds for daemons that start later, until it is resumed or its time is up.
    """
    target, name = target_of(lane, budget)
    change = Change(
        "pause", target, name, (Kind.PAUSE,), (Wanted(Kind.PAUSE),), reason_of(reason), until_of(for_, until)
    )
    return _do(configured(config), change, operator_of(as_), as_json=as_json, verb="paused")


def resume(
    lane: LaneName = None,
    budget: BudgetName = None,
    reason: MaybeWhy = "",
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """End a pause, in every daemon."""
    target, name = target_of(lane, budget)
    change = Change("resume", target, name, (Kind.PAUSE,), reason=reason.strip()[:500])
    return _do(configured(config), change, operator_of(as_), as_json=as_json, verb="resumed")


def set_(
    lane: LaneName = None,
    budget: BudgetName = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Starts per second in the whole fleet, of the budget.")
    ] = None,
    quota: Annotated[str | None, typer.Option("--quota", help='The same as "50 per 60 s".')] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", min=1, help="At once: of a lane in each daemon, of a budget in all."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Return to the configuration.")] = False,
    reason: MaybeWhy = "",
    for_: For = None,
    until: Until = None,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Lower what is configured, in every daemon: never above the configuration. --clear returns to it."""
    settings, (target, name) = configured(config), target_of(lane, budget)
    asked = Asked(rate, quota, concurrency)
    if clear:
        if asked.any or for_ or until:
            raise Refused("--clear takes no other setting", "Clear first, then set")
        change = Change("clear", target, name, _LIMITS, reason=reason.strip()[:500])
        return _do(settings, change, operator_of(as_), as_json=as_json, verb="back to its configuration")
    target, name, wanted = asked.wanted(settings, target, name)
    ends = tuple(one.kind for one in wanted)
    change = Change("set", target, name, ends, wanted, reason_of(reason), until_of(for_, until))
    return _do(settings, change, operator_of(as_), as_json=as_json, verb=f"set to {_said(wanted)}")


@dataclass(frozen=True, slots=True)
class Asked:
    """The settings of one ``lanes set``."""

    rate: float | None
    quota: str | None
    concurrency: int | None

    @property
    def any(self) -> bool:
        return (self.rate, self.quota, self.concurrency) != (None, None, None)

    def wanted(self, config: Config, target: Target, name: str) -> tuple[Target, str, tuple[Wanted, ...]]:
        """What is to be in force, and of what: a lane's quota is its budget's.

        Raises:
            Refused: nothing is asked for, or more than is configured.
        """
        if not self.any:
            raise Refused("nothing is to be set", "Give --rate, --quota or --concurrency, or --clear")
        if self.rate is not None and self.quota is not None:
            raise Refused("--rate and --quota are two words for one thing", "Give one of them")
        require_configured(config, target, name)
        paces = self.rate is not None or self.quota is not None
        if target is Target.LANE and paces:
            if self.concurrency is not None:
                raise Refused(
                    "a lane's quota is its budget's, and its concurrency its own",
                    "Set them by two commands",
                )
            target, name = Target.BUDGET, _own_budget(config, name)
        return target, name, (*self._paced(config, name), *self._at_once(config, target, name))

    def _paced(self, config: Config, budget: str) -> tuple[Wanted, ...]:
        if self.rate is None and self.quota is None:
            return ()
        ours = config.budgets[budget].ours()
        quota = self._quota(budget, ours)
        return (Wanted(Kind.QUOTA, quota.count, quota.period_s),)

    def _quota(self, budget: str, ours: Quota) -> Quota:
        if self.quota is not None:
            try:
                return lower_quota(budget, ours, parse_quota(self.quota))
            except ValueError as error:
                raise Refused(f"{self.quota!r} is no quota", f"It {error}") from None
        assert self.rate is not None
        if not _RATE_MIN <= self.rate < float("inf"):
            raise Refused(f"{self.rate:g} is no rate", "Give starts per second above 0; to stop, pause")
        return lower_rate(budget, ours, self.rate)

    def _at_once(self, config: Config, target: Target, name: str) -> tuple[Wanted, ...]:
        if self.concurrency is None:
            return ()
        most = config.budgets[name].concurrency if target is Target.BUDGET else config.lanes[name].concurrency
        return (Wanted(Kind.CONCURRENCY, lower_count(f"{target} {name!r}", most, self.concurrency)),)


def _own_budget(config: Config, lane: str) -> str:
    """The budget that a lane has for itself.

    Raises:
        Refused: it has none, or others use it too.
    """
    budget = config.lanes[lane].budget
    if budget is None:
        raise Refused(
            f"lane {lane!r} has no budget, so it has no quota that could be lowered",
            "Lower its --concurrency, or give it a budget in the configuration",
        )
    others = [name for name, other in config.lanes.items() if other.budget == budget and name != lane]
    if others:
        raise Refused(
            f"lane {lane!r} shares budget {budget!r} with {', '.join(others)}",
            f"Lower it for all of them: --budget {budget}",
        )
    return budget


def _said(wanted: tuple[Wanted, ...]) -> str:
    return " and ".join(
        f"{one.amount} per {one.period_s:g} s" if one.kind is Kind.QUOTA else f"{one.amount} at once"
        for one in wanted
    )


# --- doing it -------------------------------------------------------------------------------------------


def _do(config: Config, change: Change, operator: Operator, *, as_json: bool, verb: str) -> Exit:
    followed, still = asyncio.run(_make(config, change, operator))
    what = f"{change.target} {change.name}"
    if as_json:
        say_json(
            {
                "target": change.target,
                "name": change.name,
                "action": change.action,
                "changed": followed is not None,
                "number": followed.number if followed else None,
                "actor": operator.name,
                "reason": change.reason,
                "followed": followed.followed if followed else (),
                "waiting": followed.waiting if followed else (),
                "still_paused": still,
            }
        )
    elif followed is None:
        people().print(f"{what}: there was nothing to {change.action}")
    else:
        _tell(f"{what} {verb}", followed)
    if still is not None and change.action == "resume" and not as_json:
        people().print(
            f"its budget {still.name} is paused by {still.actor}: {still.reason}; --budget {still.name}"
            " resumes it",
            style="yellow",
        )
    return Exit.INCOMPLETE if followed is not None and followed.waiting else Exit.OK


async def _make(config: Config, change: Change, operator: Operator) -> tuple[Followed | None, Control | None]:
    """What came of it, and what still pauses the lane or the budget after it."""
    async with operations_of(config) as operations:
        await require(config, operations, change.target, change.name)
        followed = await make(operations, change, operator)
        known = Controls((await read_standing(operations)).controls)
    if change.target is Target.BUDGET:
        return followed, known.in_force(Target.BUDGET, change.name, Kind.PAUSE, 0.0)
    settings = config.lanes.get(change.name)
    return followed, known.pause(change.name, settings.budget if settings else None, 0.0)


def _tell(what: str, followed: Followed) -> None:
    console, count = people(), len(followed.followed)
    if not followed.followed and not followed.waiting:
        console.print(f"{what}; no daemon runs now, and each will follow when it starts")
    elif followed.waiting:
        console.print(f"{what}; {count} daemons follow", style="yellow")
        console.print(f"not yet: {', '.join(followed.waiting)}. Each does as soon as it hears of it")
    else:
        console.print(f"{what}; {count} of {count} daemons follow", style="green")
