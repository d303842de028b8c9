"""The audit: who changed what, when and why, and what came of it. Entries are only ever added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from acklast.ledger.connect import Connection
from acklast.ledger.evidence import storable_json
from acklast.ledger.operate import Operator

_ENTRY: Final = """
insert into acklast.audit (actor, action, lane, key, run, detail)
values ($1, $2, $3, $4, $5, $6::jsonb || jsonb_build_object('role', session_user))
"""


async def put_down(
    connection: Connection,
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
