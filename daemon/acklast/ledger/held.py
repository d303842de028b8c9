"""How many deliveries the daemons hold that they have not started, by lane."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from acklast.ledger.operate import Operations

# How a daemon's lanes stand is written by the daemon, every second or so.
HELD: Final = """
select clock_timestamp() as now,
       (select coalesce(jsonb_object_agg(lane, held), '{}')
        from (select r.lane, sum(r.held) as held
              from acklast.lane_reports r join acklast.workers w on w.id = r.session
              where w.ended_at is null and w.lease_until > clock_timestamp()
              group by r.lane) as by_lane) as held
"""


class Holdings:
    """What a command knows of it."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def held(self) -> tuple[datetime, Mapping[str, int]]:
        """The time, and the numbers of that moment.

        Raises:
            LedgerUnavailable: the ledger does not answer.
        """
        [row] = await self._operations.fetch(HELD)
        return row["now"], json.loads(row["held"])
