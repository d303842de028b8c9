"""How many jobs wait in the lanes' queues, as commands ask for it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from acklast.cli.servers import broker_of
from acklast.config import Config
from acklast.errors import AcklastError
from acklast.lane_queues import Queues, count, look_at, messages_in, names_of, work_of

__all__ = ["Queues", "look", "messages_in", "ready_in", "work_of"]


async def look(config: Config, lanes: Iterable[str]) -> tuple[dict[str, Queues], str | None]:
    """The queues of these lanes, and why nothing can be said of them where the broker cannot be asked."""
    wanted = list(lanes)
    try:
        async with broker_of(config) as connection:
            return await look_at(connection, config, wanted), None
    except AcklastError as error:
        return {lane: Queues(unseen=[*chain(*names_of(config, lane))]) for lane in wanted}, error.what


async def ready_in(config: Config, queue: str) -> int | None:
    """How many messages are ready in one queue; None where that cannot be seen."""
    try:
        async with broker_of(config) as connection:
            return await count(connection, queue)
    except AcklastError:
        return None
