"""What the tests of retention share: windows, a whole pass, one job in every state."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta

from acklast.ledger.api import Ledger, Session, State
from acklast.ledger.retention import Keep, Keeps, Pruned
from acklast.outcome import Bury, Complete, GiveBack, Hold, Retry, Verdict
from ledger.worlds import LANE, World, record, started

DAY = 86_400.0
DONE_DAYS, PAYLOAD_DAYS, DEAD_DAYS = 30, 40, 60
KEEPS: Keeps = {LANE: Keep(DONE_DAYS * DAY, DEAD_DAYS * DAY, PAYLOAD_DAYS * DAY)}


async def whole_pass(ledger: Ledger, keeps: Keeps = KEEPS, *, dry_run: bool = False) -> Pruned:
    """A pass to its end; what it removed."""
    total = Pruned()
    async with aclosing(ledger.prune(keeps, dry_run=dry_run)) as steps:
        async for step in steps:
            total += step.pruned
    return total


async def pruned(world: World, keeps: Keeps = KEEPS, *, dry_run: bool = False) -> Pruned:
    """A pass by a store that has looked at nothing before: only the ledger's clock can be put forward."""
    return await whole_pass(await world.another(), keeps, dry_run=dry_run)


async def one_in_every_state(ledger: Ledger, session: Session, run: str | None = None) -> None:
    """Jobs whose keys are their states; the dead and the unresolved one have a letter each."""
    for key in State:
        fresh = await started(ledger, session, key, run=run)
        verdicts: dict[str, Verdict] = {
            "done": Complete(),
            "waiting": Retry(fresh.now + timedelta(days=1000), "busy"),
            "dead": Bury("refused"),
            "unresolved": Hold("timeout"),
            "queued": GiveBack("drain"),
            "cancelled": Retry(fresh.now + timedelta(days=1000), "busy"),
        }
        if key in verdicts:
            await record(ledger, session, fresh, verdicts[key], key)
    await ledger.cancel(LANE, "cancelled")


async def states(ledger: Ledger) -> set[State]:
    """The states of those that are left."""
    found = [await ledger.jobs(state.value) for state in State]
    return {job.state for jobs in found for job in jobs}
