"""The audit: who changed what, when and why, and what came of it. Entries are only ever added."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import asyncpg

from acklast.ledger.evidence import storable_json
from acklast.ledger.operate import Operations, Operator
from acklast.ledger.pool import Handle

_ENTRY: Final = """
insert into acklast.audit (actor, action, lane, key, run, detail)
values ($1, $2, $3, $4, $5, $6::jsonb || jsonb_build_object('role', session_user))
"""


async def put_down(
    connection: Handle,
    operator: Operator,
    action: str,
    effect: Mapping[str, Any],
    *,
    lane: str | None = None,
    key: str | None = None,
    run: str | None = None,
    reason: str | None = None,
) -> None:
    """Add an entry, in whatever transaction the connection is in.

    ``action`` is the command's words with dots: ``dead.note``.
    """
    detail = {**effect, "login": operator.login} | ({} if reason is None else {"reason": reason})
    await connection.execute(_ENTRY, operator.name, action, lane, key, run, storable_json(detail))


@dataclass(frozen=True, slots=True)
class Asked:
    """Which entries are meant; each field that is not None narrows it.

    ``action`` is one, or the first words of several: ``dead`` is ``dead.drop`` and ``dead.note``.
    """

    lane: str | None = None
    key: str | None = None
    run: str | None = None
    operator: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. ``login`` is user and host of the command, ``role`` the one that it used in Postgres."""

    id: int
    at: datetime
    operator: str
    login: str | None
    role: str | None
    action: str
    lane: str | None
    key: str | None
    run: str | None
    reason: str | None
    effect: Mapping[str, Any]


# There are few actions: a walk from one to the next in the index finds those that are meant, and the page is
# merged from the latest entries of each. An entry has its number when it has its time, give or take a moment:
# so times bound the numbers, and whatever lies outside is not read.
_PAGE: Final = """
with recursive actions (action) as (
    (select action from acklast.audit order by action limit 1)
    union all
    select (select a.action from acklast.audit a where a.action > n.action order by a.action limit 1)
    from actions n where n.action is not null
),
bounds as materialized (
    select coalesce((select id from acklast.audit where at < $6::timestamptz - interval '1 minute'
                     order by at desc limit 1), 0) as low,
           least($8, (select id from acklast.audit where at > $7::timestamptz + interval '1 minute'
                      order by at limit 1)) as high
)
select p.* from (
    select action from actions where $5::text is null or action = $5 or starts_with(action, $5 || '.')
) as n cross join bounds b cross join lateral (
    select a.id, a.at, a.actor, a.action, a.lane, a.key, a.run, a.detail from acklast.audit a
    where a.action = n.action and a.id > b.low and a.id < coalesce(b.high, 9223372036854775807)
      and ($1::text is null or a.lane = $1) and ($2::text is null or a.key = $2)
      and ($3::text is null or a.run = $3) and ($4::text is null or a.actor = $4)
      and ($6::timestamptz is null or a.at >= $6) and ($7::timestamptz is null or a.at < $7)
    order by a.id desc limit $9
) as p
order by p.id desc limit $9
"""


async def entries(operations: Operations, asked: Asked, limit: int, before: int | None = None) -> list[Entry]:
    """The latest entries, or those before one that was listed, the latest first.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    wanted = (asked.lane, asked.key, asked.run, asked.operator, asked.action, asked.since, asked.until)
    return [_entry(row) for row in await operations.fetch(_PAGE, *wanted, before, limit)]


def _entry(row: asyncpg.Record) -> Entry:
    effect = json.loads(row["detail"])
    login, role, reason = (effect.pop(name, None) for name in ("login", "role", "reason"))
    whose = (row["action"], row["lane"], row["key"], row["run"])
    return Entry(row["id"], row["at"], row["actor"], login, role, *whose, reason or None, effect)
