"""Messages that cannot leave a queue: the broker's dead-letter worker finds no way for them.

A wait queue passes a message on only when its target has confirmed it. Where the target is gone, or refuses,
the message stays with the worker, which tries again every three minutes: AMQP shows it nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from acklast.management import Rows, seen
from acklast_topology.finding import Finding

BETWEEN_S: Final = 6.0
"""Between two looks: the management API counts every five seconds. By then what is on its way has gone."""


async def stuck(
    brokers: Callable[[], Sequence[str]], base: str | None, queues: Collection[str]
) -> tuple[Mapping[str, int], str]:
    """How many messages of each of these queues stood behind its dead-letter worker all the time, and what
    could not be seen."""
    earlier = await seen(brokers(), base)
    if isinstance(earlier, Finding):
        return {}, earlier.detail
    await asyncio.sleep(BETWEEN_S)
    later = await seen(brokers(), base)
    if isinstance(later, Finding):
        return {}, later.detail
    return both(_behind(earlier.queues), _behind(later.queues), queues), ""


def both(earlier: Mapping[str, int], later: Mapping[str, int], queues: Collection[str]) -> Mapping[str, int]:
    """What was there at both looks."""
    counts = {name: min(earlier.get(name, 0), count) for name, count in later.items() if name in queues}
    return {name: count for name, count in counts.items() if count}


def _behind(rows: Rows) -> dict[str, int]:
    return {row["name"]: row.get("messages_dlx") or 0 for row in rows}
