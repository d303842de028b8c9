"""The proof line of a run: every promised job is in exactly one state, or the numbers say that it is not."""

from __future__ import annotations

from typing import Final

from acklast.ledger.api import RunView, State

ORDER: Final = (
    State.DONE,
    State.WAITING,
    State.CLAIMED,
    State.QUEUED,
    State.DEAD,
    State.UNRESOLVED,
    State.CANCELLED,
)
PRUNABLE: Final = (State.DONE, State.DEAD, State.CANCELLED)
"""States of jobs that retention removes: they are counted in the run's tally from then on."""


def proof(run: RunView) -> str:
    """``manifest 5 = done 3 + waiting 1 + ... : balances``; without a manifest, its total."""
    terms = " + ".join(f"{state} {run.counts.get(state, 0)}" for state in ORDER)
    if run.manifest is None:
        return f"total {run.total} = {terms}: no manifest to compare with"
    if run.balanced:
        return f"manifest {run.manifest} = {terms}: balances"
    difference = run.manifest - run.total
    verdict = f"{difference} missing" if difference > 0 else f"{-difference} too many"
    return f"manifest {run.manifest} != {terms} = {run.total}: {verdict}"


def progress(run: RunView) -> str:
    """What is left to do, in words."""
    unresolved = run.counts.get(State.UNRESOLVED, 0)
    waits = f"; {unresolved} unresolved wait for a decision" if unresolved else ""
    return f"{f'{run.open} open' if run.open else 'ended'}{waits}"
