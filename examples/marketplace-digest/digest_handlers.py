"""The marketplace's mails: a digest for each seller, and receipts that somebody waits for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import asyncpg
from pydantic import BaseModel

from acklast import App, Context, Firing, Permanent, Transient, Unknown
from acklast_topology import Job

app = App()
TOKEN = "demo-token-of-the-stand-in"  # noqa: S105 - of a stand-in that sends nothing


class Digest(BaseModel):
    """A row of ``sellers`` below."""

    seller: str
    name: str
    email: str
    contact: str
    offers: int


class Receipt(BaseModel):
    """A row of ``payouts.sql``."""

    payout: str
    name: str
    email: str
    cents: int


class Notice(BaseModel):
    """To a seller's other address: the first one does not work."""

    seller: str
    contact: str


# The quickest way to read them would be a query; this goes page by page, as one reads another service's API.
_SELLERS = """
select seller, name, email, contact, offers from sellers
where wants_digest and seller > $1 order by seller limit 50
"""


async def sellers(firing: Firing) -> AsyncIterator[dict[str, object]]:
    """Who gets this week's digest, behind the seller whose job is promised already."""
    connection = await asyncpg.connect(os.environ["MARKETPLACE_DSN"])
    try:
        after = firing.after or ""
        while rows := await connection.fetch(_SELLERS, after):
            await asyncio.sleep(0.1)  # an API takes its time
            for row in rows:
                yield dict(row)
            after = rows[-1]["seller"]
    finally:
        await connection.close()


def do_not_mail() -> set[str]:
    """Sellers whom nobody is to mail: a list that others keep, and may get wrong."""
    listed = os.environ.get("DO_NOT_MAIL")
    return set(Path(listed).read_text().split()) if listed else set()


@app.job("seller.digest.v1", lane="digest", timeout_s=20)
async def send_digest(digest: Digest, ctx: Context) -> dict[str, bool]:
    """Send one digest; where the address is gone, promise a notice to the other one with this job's end."""
    if digest.seller in do_not_mail():
        raise Permanent("do_not_mail")
    text = f"{digest.name}, there are {digest.offers} new offers"
    sent = await mail(ctx, digest.email, "Your week", text)
    if not sent:
        notice = {"seller": digest.seller, "contact": digest.contact}
        ctx.enqueue(Job.json("receipts", f"{ctx.key}:notice", notice, type="seller.notice.v1"))
    return {"sent": sent}


@app.job("payout.receipt.v1", lane="receipts", timeout_s=20)
async def send_receipt(receipt: Receipt, ctx: Context) -> dict[str, bool]:
    text = f"{receipt.name}, we have paid you {receipt.cents / 100:.2f} EUR"
    return {"sent": await mail(ctx, receipt.email, f"Payout {receipt.payout}", text)}


@app.job("seller.notice.v1", lane="receipts", timeout_s=20)
async def send_notice(notice: Notice, ctx: Context) -> dict[str, bool]:
    text = f"The address of {notice.seller} does not work any more: please give us another"
    return {"sent": await mail(ctx, notice.contact, "Your address", text)}


async def mail(ctx: Context, to: str, subject: str, text: str) -> bool:
    """Send one; False where the address is gone."""
    message = {"to": to, "subject": subject, "text": text}
    headers = {"Authorization": f"Bearer {TOKEN}", **ctx.idempotency_headers}
    try:
        async with session().post("/v1/messages", json=message, headers=headers) as response:
            if response.status == 410:
                return False
            ctx.raise_for_status(response)
            return True
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise Transient("unreachable") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unknown("no_answer") from error


_sessions: list[aiohttp.ClientSession] = []


def session() -> aiohttp.ClientSession:
    """The process's one HTTP session."""
    if not _sessions:
        timeout = aiohttp.ClientTimeout(total=15, connect=3)
        _sessions.append(aiohttp.ClientSession(os.environ["MAIL_API_URL"], timeout=timeout))
    return _sessions[0]


@app.on_stop
async def close_session() -> None:
    while _sessions:
        await _sessions.pop().close()
