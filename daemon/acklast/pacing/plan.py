"""One daemon's look at a budget's account: what follows for the permits that it holds. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from acklast.ledger.budgets import Account, Holding
from acklast.pacing.fleet import Want, needs, step


@dataclass(frozen=True, slots=True)
class Mine:
    """What this daemon knows of itself that the ledger does not."""

    session: int
    former: int | None
    """The session under which the permits were taken, where that was another: its row is ours."""
    held: int
    busy: int
    waiting: int
    backlog: int
    """Jobs in the queues of its lanes, while it takes nothing in."""
    unserved: int
    """Those of them that no daemon takes in."""
    fresh: bool
    quota: int
    period_s: float

    def needs(self, coming: int, *, scarce: bool) -> int:
        """What it can use. ``scarce``: there are fewer permits than daemons, so none travels to a queue that
        is served already.
        """
        backlog = self.unserved if scarce else self.backlog
        return needs(held=self.held + coming, busy=self.busy, waiting=self.waiting, backlog=backlog)


@dataclass(frozen=True, slots=True)
class Plan:
    keep: int
    take: int
    gone: tuple[int, ...]
    """Ended sessions whose permits are cool, and the former session of this process."""
    quota: int
    period_s: float
    """What holds for the fleet: the fewest calls and the longest period of those that are configured."""
    needs: int
    """What to tell the others."""
    short: bool
    """Others have what this one lacks."""
    lacks: bool
    """More could be used than there is now."""
    share: float
    """What part this daemon then holds of all that are held."""
    more: bool
    """Some are nobody's even then."""
    returns_s: float | None
    """When the next permits of an ended session have cooled."""
    recorded: Holding | None
    """What the ledger says of this session."""


def plan(account: Account, mine: Mine) -> Plan:
    """What to do about ``mine``, by what all others told."""
    own = {mine.session, mine.former}
    others = [holding for holding in account.holdings if holding.session not in own]
    alive = [holding for holding in others if holding.live]
    hot = [holding for holding in others if not holding.live and holding.hot_left_s > 0]
    gone = [holding.session for holding in others if not holding.live and holding.hot_left_s <= 0]
    recorded = {holding.session: holding for holding in account.holdings if holding.session in own}
    if mine.former in recorded and mine.former != mine.session:
        gone.append(recorded[mine.former].session)
    quota = min([mine.quota, *(holding.quota for holding in alive)])
    period_s = max([mine.period_s, *(holding.period_s for holding in alive)])
    heated = sum(holding.held for holding in hot)
    pool = quota - heated - sum(holding.held for holding in alive) - mine.held
    me = recorded.get(mine.session)
    wants = [_want(holding) for holding in alive]
    waited_s = me.waited_s if me and not mine.held else 0.0
    scarce = len(wants) + 1 > quota
    wants.append(Want(mine.session, mine.held, mine.needs(0, scarce=scarce), waited_s, mine.fresh))
    move = step(mine.session, quota - heated, wants, pool, period_s)
    return Plan(
        keep=move.keep,
        take=move.take,
        gone=tuple(gone),
        quota=quota,
        period_s=period_s,
        short=move.short,
        needs=mine.needs(move.take, scarce=scarce),
        lacks=wants[-1].needs > mine.held + move.take or mine.held + move.take == 0,
        share=(mine.held + move.take) / max(1, sum(want.held for want in wants) + move.take),
        more=pool > move.take,
        returns_s=min((holding.hot_left_s for holding in hot if holding.held), default=None),
        recorded=me,
    )


def _want(holding: Holding) -> Want:
    return Want(holding.session, holding.held, holding.needs, holding.waited_s, holding.fresh)
