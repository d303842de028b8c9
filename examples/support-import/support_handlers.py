"""Imports old support tickets into a help desk: one ticket per job, by its import endpoint."""

from __future__ import annotations

import os
from datetime import date
from typing import Annotated, Literal

import aiohttp
from pydantic import BaseModel, ConfigDict, Field

from acklast import App, Context, Permanent, Transient, Unknown

app = App()


class Ticket(BaseModel):
    """One row of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ticket: Annotated[str, Field(pattern=r"^T-\d{5}$")]
    account: Annotated[str, Field(pattern=r"^A-\d{4}$")]
    subject: Annotated[str, Field(min_length=1, max_length=200)]
    opened_on: date
    priority: Literal["low", "normal", "high"]


@app.job("support.ticket.v1", lane="imports", timeout_s=10)
async def import_ticket(ticket: Ticket, ctx: Context) -> dict[str, int]:
    """Import one ticket. Its number in the help desk is the job's result."""
    try:
        async with session().post(
            "/import", json=ticket.model_dump(mode="json"), headers=ctx.idempotency_headers
        ) as response:
            if response.status == 422:
                raise Permanent("account_closed")
            ctx.raise_for_status(response)
            return {"number": int((await response.json())["number"])}
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise Transient("unreachable") from error  # no connection, so nothing was sent
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unknown("no_answer") from error  # the help desk knows the key when it comes again


_sessions: list[aiohttp.ClientSession] = []


def session() -> aiohttp.ClientSession:
    """The process's one HTTP session, made at the first job: a session needs a running event loop."""
    if not _sessions:
        timeout = aiohttp.ClientTimeout(total=8, connect=3)
        _sessions.append(aiohttp.ClientSession(os.environ["HELP_DESK_URL"], timeout=timeout))
    return _sessions[0]


@app.on_stop
async def close_session() -> None:
    while _sessions:
        await _sessions.pop().close()
