"""``topology apply`` in its parts: declare what is missing, replace what differs, remove what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from aio_pika.abc import AbstractConnection
from aiormq.exceptions import AMQPError

from acklast.clearing import Clearing
from acklast.cli.output import people
from acklast.config import Config
from acklast.errors import TopologyError
from acklast.management import Seen, seen
from acklast.moving import Emptiness, Tell
from acklast.replace import Replacing
from acklast.ways import bar_others
from acklast_topology.declare import apply
from acklast_topology.finding import Finding, Found
from acklast_topology.plan import Plan
from acklast_topology.verify import leftovers

_WORDS: Final = {
    "made": "is there",
    "bound": "is bound",
    "unbound": "is unbound",
    "moved": "{count} messages moved",
    "held": "{count} consumers hold messages; waiting for them. `acklast lanes pause` has them let go",
    "deleted": "is deleted",
}


async def applied(
    connection: AbstractConnection,
    config: Config,
    *,
    migrate: bool,
    prune: bool,
    longest_s: float,
    tell: Tell,
) -> list[Finding]:
    """Make the plan true as far as it is asked for; what was done and what is left.

    Raises:
        AlreadyChanging: somebody else replaces or removes.
        TopologyError: replacing or removing needs the management API, or cannot go on.
        ConnectionError, TimeoutError: the broker stopped answering.
    """
    plan = config.plan()
    found = await apply(connection, plan)
    if not (migrate or prune):
        return found
    try:
        await bar_others(connection, config.names)
        if migrate:
            found = await _migrated(connection, config, plan, found, longest_s, tell)
        if prune:
            found += await _pruned(connection, config, plan, tell)
    except AMQPError as error:
        raise TopologyError(f"the broker refuses: {error}", "Nothing is lost. Run this again") from error
    return found


async def _migrated(
    connection: AbstractConnection,
    config: Config,
    plan: Plan,
    found: list[Finding],
    longest_s: float,
    tell: Tell,
) -> list[Finding]:
    shown = await _shown(config)
    differ = [finding for finding in found if finding.status is Found.DIFFERS]
    replacing = Replacing(
        connection, config.names, shown.bindings, Emptiness(connection, _listed(config)), tell, longest_s
    )
    done = await replacing.all(plan, {row["name"] for row in shown.queues}, differ)
    made = [finding for finding in found if finding.status is Found.CREATED]
    said = {(finding.kind, finding.name) for finding in (*done, *made)}
    # Once more: what is bound to what was replaced.
    again = await apply(connection, plan)
    return [*done, *made, *(finding for finding in again if (finding.kind, finding.name) not in said)]


async def _pruned(connection: AbstractConnection, config: Config, plan: Plan, tell: Tell) -> list[Finding]:
    shown = await _shown(config)
    left = await leftovers(connection, config.names, plan, shown.queues)
    emptiness = Emptiness(connection, _listed(config))
    return await Clearing(connection, config.names, shown.bindings, emptiness, tell).all(left)


async def _shown(config: Config) -> Seen:
    shown = await seen(config.broker.addresses(), config.broker.management_url)
    if isinstance(shown, Finding):
        raise TopologyError(
            f"what messages a queue holds cannot be known without the management API: {shown.detail}",
            shown.remedy,
        )
    return shown


def _listed(config: Config) -> Callable[[], Any]:
    async def listed() -> Mapping[str, Mapping[str, Any]]:
        return {row["name"]: row for row in (await _shown(config)).queues}

    return listed


@contextmanager
def telling(*, quiet: bool) -> Iterator[Tell]:
    """Says on standard error, on a terminal, which step has been done."""
    console = people(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda step, queue, count: None
        return
    with console.status("looking") as status:

        def tell(step: str, queue: str, count: int) -> None:
            if words := _WORDS.get(step):
                status.update(f"{queue}: {words.format(count=count)}")
            if step == "held":
                console.print(f"{queue}: {_WORDS[step].format(count=count)}")

        yield tell
