"""``acklast jobs missing``: what the broker should have and has not, and sending it again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

import typer

from acklast.carriers import CarrierSender
from acklast.cli.audited import audited, audited_if_there
from acklast.cli.bar import bar
from acklast.cli.lane_target import As, operator_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.cli.servers import link_of
from acklast.config import Config, select
from acklast.errors import Exit
from acklast.ledger.connect import Address
from acklast.ledger.missing import Overdue, Search
from acklast.ledger.operate import Operator
from acklast.reconciler import LOOKS, Again, Found, Lanes, absences_of, look, queues_of, sort_out
from acklast.stuck import stuck
from acklast_topology.sender import Status


def missing(
    lane: Annotated[
        list[str] | None, typer.Option("--lane", "-l", help="Only this lane; may be given several times.")
    ] = None,
    republish: Annotated[
        bool, typer.Option("--republish", help="Send again what is missing, where its message is kept.")
    ] = False,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Tell which jobs are open in the ledger and are not in the broker: purged, deleted, lost with a node.

    Looks at the lanes' queues for some seconds: only where they are seen empty anything is proven. Without
    --republish it changes nothing.
    """
    settings = select(configured(config), lane or [])
    seeking = _republish(settings, operator_of(as_)) if republish else _seek(settings, republish=False)
    sought = asyncio.run(seeking)
    if as_json:
        listed = [{"lane": name, **_document(one)} for name, one in sought.lanes.items()]
        left, stands = sought.anything_left, {"stuck": sought.stuck, "unseen": sought.unseen}
        say_json({"ok": not left, "lanes": listed, **stands})
    else:
        _tell(sought, republish)
        _tell_stuck(sought.stuck, sought.unseen)
    return Exit.UNFIT if sought.anything_left else Exit.OK


@dataclass(frozen=True, slots=True)
class Sought:
    """What was found, by lane; what stands behind dead-letter workers, by queue; why that cannot be seen."""

    lanes: Mapping[str, Found]
    proven: frozenset[str]
    """The lanes whose queues were seen empty."""
    stuck: Mapping[str, int]
    unseen: str

    @property
    def anything_left(self) -> bool:
        return bool(self.stuck) or any(one.missing > one.sent for one in self.lanes.values())


def _document(found: Found) -> dict[str, object]:
    return {name: getattr(found, name) for name in Found.__slots__}


async def _republish(config: Config, operator: Operator) -> Sought:
    # Two entries: one that was killed in between has its beginning there.
    await audited(config, operator, "jobs.republish", {"lanes": list(config.lanes)})
    sought = await _seek(config, republish=True)
    sent = {lane: {"sent": one.sent, "unconfirmed": one.unconfirmed} for lane, one in sought.lanes.items()}
    await audited_if_there(config, operator, "jobs.republish.ended", {"lanes": sent})
    return sought


async def _seek(config: Config, *, republish: bool) -> Sought:
    lanes = absences_of(config)
    search = await Search.connect(
        Address.of(config.ledger.address(), allow_unsafe_server=config.ledger.allow_unsafe_server)
    )
    try:
        async with link_of(config) as link:
            with bar(LOOKS, "look at the queues") as progress:
                connection = await link.connect()
                async for looks in look(search, connection, queues_of(config), lanes):
                    progress.at(looks, "")
            send = CarrierSender(link, timeout_s=config.broker.publish_timeout_s)
            again = Again(search, config.names, send) if republish else leave
            found = await _through(search, lanes, again)
        proven = frozenset(lane for lane, absence in lanes.items() if absence.proven is not None)
        planned = {queue.name for queue in config.plan().queues}
        return Sought(
            found, proven, *await stuck(config.broker.addresses, config.broker.management_url, planned)
        )
    finally:
        await search.close()


async def _through(
    search: Search, lanes: Lanes, again: Callable[[Overdue], Awaitable[Status | None]]
) -> Mapping[str, Found]:
    found: Mapping[str, Found] = {lane: Found() for lane in lanes}
    with bar(0, "look through the ledger") as progress:
        async with aclosing(sort_out(search, lanes, again)) as steps:
            async for found, at, of in steps:
                progress.at(at, f"{sum(one.missing for one in found.values())} missing", of)
    return found


async def leave(_: Overdue) -> Status | None:
    """Send nothing."""
    return None


def _tell(sought: Sought, republish: bool) -> None:
    console, found = people(), sought.lanes
    for lane, one in found.items():
        console.print(f"{lane}: {_said(one, proven=lane in sought.proven)}")
        for key in one.examples:
            console.print(f"  {key}")
        if more := one.missing - one.sent - len(one.examples):
            console.print(f"  and {more} more")
    if any(one.kept for one in found.values()) and not republish:
        console.print("Send those again whose messages are kept: acklast jobs missing --republish")
    if any(one.missing > one.kept for one in found.values()):
        console.print("Of the others publish the same message again, with the same key: it finds its job")


def _said(found: Found, *, proven: bool) -> str:
    parts = [f"{found.missing} missing"]
    parts += [f"{found.kept} of them kept"] if found.missing else []
    parts += [f"{found.sent} sent again"] if found.sent else []
    parts += [f"{found.unconfirmed} not confirmed"] if found.unconfirmed else []
    if found.unproven:
        why = "due too short a time ago" if proven else "its queues were not seen empty"
        parts.append(f"{found.unproven} overdue, which may be there ({why})")
    return ", ".join(parts)


def _tell_stuck(behind: Mapping[str, int], unseen: str) -> None:
    console = people()
    for queue, count in behind.items():
        console.print(f"{queue}: {count} behind its dead-letter worker, whose target does not take them")
    if behind:
        console.print(
            "Run 'acklast topology plan' to see what is missing; the broker tries every three minutes"
        )
    if unseen:
        console.print(f"What stands behind a dead-letter worker cannot be seen: {unseen}")
