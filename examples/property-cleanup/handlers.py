"""Orders the cleaning of vacated properties at the property API: one order per property and run."""

from __future__ import annotations

import os
from datetime import date
from typing import Annotated, Literal, Self

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, model_validator

from acklast import App, Context, Permanent, RateLimited, Transient, Unknown
from acklast.errors import JobError

app = App()


class Cleanup(BaseModel):
    """One row of the file, or one message of any publisher."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    property_id: Annotated[str, Field(pattern=r"^P-\d{5}$")]
    task: Literal["clean", "clear_out", "garden", "paint"]
    rooms: Annotated[int, Field(ge=1, le=40)]
    vacated_on: date
    ready_by: date
    budget_cents: Annotated[int, Field(gt=0, le=1_000_000)]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.ready_by < self.vacated_on:
            raise ValueError("ready_by lies before vacated_on")
        return self


@app.job("property.cleanup.v1", lane="cleanup", timeout_s=10)
async def order_cleanup(cleanup: Cleanup, ctx: Context) -> dict[str, int]:
    """Order one cleanup. The receipt's number is the job's result."""
    order = cleanup.model_dump(mode="json", exclude={"property_id"})
    try:
        async with session().post(
            f"/properties/{cleanup.property_id}/cleanups", json=order, headers=ctx.idempotency_headers
        ) as response:
            if error := refusal(response.status, response.headers.get("Retry-After")):
                raise error
            return {"receipt": int((await response.json())["receipt"])}
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise Transient("unreachable") from error  # no connection, so nothing was sent
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unknown("no_answer") from error  # sent, perhaps done: order_exists will tell


@app.reconcile("property.cleanup.v1")
async def order_exists(cleanup: Cleanup, ctx: Context) -> dict[str, int] | bool:
    """Whether an earlier attempt's order has arrived. The lane asks before it tries again."""
    async with session().get("/cleanups", params={"key": ctx.key}) as response:
        if response.status == 404:
            return False
        response.raise_for_status()  # an error here means that it cannot tell, and the lane asks again
        return {"receipt": int((await response.json())["receipt"])}


def refusal(status: int, retry_after: str | None) -> JobError | None:
    """What the API's status code means for the job; None where the order was taken."""
    match status:
        case 200 | 201 | 202:
            return None
        case 429:
            return RateLimited(retry_after)
        case 404:
            return Permanent("property_unknown")
        case 410:
            return Permanent("property_gone")
        case 422:
            return Permanent("order_refused")
        case 401 | 403 | 408:  # ours to put right, not the job's fault
            return Transient(f"http_{status}")
        case _ if status >= 500:  # this API answers so before it has done anything
            return Transient(f"http_{status}")
        case _:
            return Permanent(f"http_{status}")


_sessions: list[aiohttp.ClientSession] = []


def session() -> aiohttp.ClientSession:
    """The process's one HTTP session, made at the first job: a session needs a running event loop."""
    if not _sessions:
        _sessions.append(
            aiohttp.ClientSession(
                os.environ["PROPERTY_API_URL"],
                # A little below the job's own timeout, so that a silent API is told from a stuck handler.
                timeout=aiohttp.ClientTimeout(total=8, connect=3),
            )
        )
    return _sessions[0]


@app.on_stop
async def close_session() -> None:
    while _sessions:
        await _sessions.pop().close()
