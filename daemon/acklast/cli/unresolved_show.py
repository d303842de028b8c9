"""One unresolved job as commands show it: its letter, its attempts, what was asked, found and said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from acklast.cli.dead_show import document as letter_document
from acklast.cli.dead_show import tell as tell_letter
from acklast.cli.output import plain, safe, second
from acklast.cli.unresolved_target import NotUnresolved
from acklast.config import Config, load_app
from acklast.errors import AcklastError
from acklast.ledger import dead
from acklast.ledger.api import JobView
from acklast.ledger.audit import Asked as AuditAsked
from acklast.ledger.audit import Entry as AuditEntry
from acklast.ledger.audit import entries
from acklast.ledger.dead import Whole
from acklast.ledger.operate import Operations
from acklast.ledger.reading import read_jobs
from acklast.ledger.unresolved import Asked, Named, asked_of
from acklast.redact import Redaction

_SAID = 100
"""Entries of the audit, the latest ones."""


@dataclass(frozen=True, slots=True)
class Account:
    """All that is known of one job."""

    letter: Whole
    job: JobView
    asked: Sequence[Asked]
    audit: Sequence[AuditEntry]


async def read(operations: Operations, named: Named, *, message: bool) -> Account:
    """``message``: the letter's too.

    Raises:
        NotUnresolved: it has gone meanwhile.
        LedgerUnavailable: the ledger does not answer.
    """
    letter = await dead.one(operations, named.id, message=message)
    jobs = await read_jobs(operations.connection, named.key, named.lane)
    if letter is None or not jobs:
        raise NotUnresolved(f"letter {named.id} has gone", "Retention or an operator has removed it")
    asked = await asked_of(operations, named.lane, named.key)
    said = await entries(operations, AuditAsked(lane=named.lane, key=named.key), _SAID)
    return Account(letter, jobs[0], asked, said[::-1])


def can_reconcile(config: Config, lane: str, job_type: str | None) -> bool | None:
    """Whether the job type can be asked; None where that is not known here."""
    if lane not in config.lanes:
        return None
    try:
        found = load_app(config).find(lane, job_type)
    except AcklastError:
        return None
    return found is not None and found.reconcile is not None


def document(account: Account, reconciles: bool | None, redaction: Redaction | None) -> dict[str, Any]:
    """For JSON."""
    job = account.job
    return {
        **letter_document(account.letter, redaction),
        "state": plain(job.state),
        "deadline": plain(job.deadline),
        "result": job.result,
        "history": plain(job.history),
        "asked": plain(account.asked),
        "audit": plain(account.audit),
        "redrives": plain(job.redrives),
        "can_reconcile": reconciles,
    }


def tell(console: Console, account: Account, reconciles: bool | None, redaction: Redaction | None) -> None:
    """For people."""
    job = account.job
    console.print(f"job {safe(job.key)} of lane {job.lane} is {job.state}")
    for one in job.history:
        why = ", ".join(safe(text) for text in (one.reason, one.detail) if text)
        console.print(f"  {second(one.ended_at)} attempt {one.attempt} {one.outcome}: {why} ({one.worker})")
    for asked in account.asked:
        console.print(f"  {second(asked.asked_at)} {safe(asked.actor)} asked: {safe(asked.reason)}")
        console.print(f"    {_found(asked)}")
    for entry in account.audit:
        by = f"{entry.action} by {safe(entry.operator)}"
        console.print(f"  {second(entry.at)} {by}: {safe(entry.reason or entry.effect.get('note') or '')}")
    console.print(f"  {_REMEDIES[reconciles]}")
    tell_letter(console, account.letter, [], list(job.redrives), redaction)


_REMEDIES = {
    True: "its type has a reconcile: 'acklast unresolved reconcile' asks",
    False: "its type has no reconcile: find out yourself, then 'acklast unresolved resolve'",
    None: "whether its type has a reconcile is not known here",
}


def _found(asked: Asked) -> str:
    if asked.done_at is None and asked.found is None:
        return f"{safe(asked.worker)} asks" if asked.worker else "not answered yet"
    why = f" ({safe(asked.code)})" if asked.code else ""
    return f"found: {asked.found or 'nothing'}{why}, so {asked.effect or 'retry'}; {second(asked.done_at)}"
