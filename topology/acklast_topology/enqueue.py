"""Enqueueing: jobs are promised to the ledger in chunks, then published, and each has its fate told.

The promise comes first, so that a job which was published is always one that its run counts. What an earlier
try left half done is found again by the ledger's answer: repeating the whole is safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Final, TypeAlias, assert_never

from acklast_topology.chunks import Chunking, Chunks
from acklast_topology.dispatch import Parcel
from acklast_topology.items import Enqueued, Fate, Given, Item, Manifest, Manifested, Pending
from acklast_topology.sender import Status

REPEATS: Final = 3
"""How often a publish whose result is unknown is repeated before the item is told as unknown."""


Dispatch: TypeAlias = Callable[[Iterable[Parcel] | AsyncIterable[Parcel]], AsyncIterator[Parcel]]
"""Publishes parcels; what has no job passes."""


async def enqueued(
    dispatch: Dispatch,
    given: Iterable[Given] | AsyncIterable[Given],
    run: str,
    manifest: Manifest,
    chunking: Chunking,
    *,
    stop: bool,
) -> AsyncIterator[Enqueued]:
    """Promise and publish chunk by chunk; the next chunk is promised while the last one is published.

    ``stop``: one chunk after the other, and none after one in which an item was not fine.
    """
    async with aclosing(Chunks(given, run, chunking).taken()) as chunks:
        if not stop:
            # Closed from the inside out: what promises ahead waits for the next chunk.
            async with (
                aclosing(_promised_ahead(chunks, run, manifest)) as parcels,
                aclosing(_published(dispatch, parcels)) as items,
            ):
                async for item in items:
                    yield item
            return
        async for chunk in chunks:
            fine = True
            async with aclosing(_published(dispatch, await _promised(chunk, run, manifest))) as items:
                async for item in items:
                    fine = fine and item.fine
                    yield item
            if not fine:
                return


async def _published(
    dispatch: Dispatch, parcels: Iterable[Parcel] | AsyncIterable[Parcel]
) -> AsyncGenerator[Enqueued, None]:
    async with aclosing(dispatch(parcels)) as passed:  # type: ignore[type-var]
        async for parcel in passed:
            yield _fate(parcel)


def _fate(parcel: Parcel) -> Enqueued:
    if parcel.job is None:
        settled: Enqueued = parcel.note
        return settled
    pending, answer = parcel.note
    fate = fate_of(parcel.sent.status, answer)
    return Enqueued(pending.number, pending.job, fate, parcel.sent.detail, pending.source)


def fate_of(status: Status, answer: Manifested) -> Fate:
    """The fate of an item whose job was published."""
    match status:
        case Status.CONFIRMED:
            return Fate.AGAIN if answer is Manifested.OPEN else Fate.ACCEPTED
        case Status.RETURNED:
            return Fate.RETURNED
        case Status.REFUSED:
            return Fate.REFUSED
        case Status.UNKNOWN:
            return Fate.UNKNOWN
        case _:
            assert_never(status)


# --- promising --------------------------------------------------------------------------------------------


async def _promised_ahead(
    chunks: AsyncIterator[list[Item]], run: str, manifest: Manifest
) -> AsyncGenerator[Parcel, None]:
    async def following() -> list[Parcel] | None:
        chunk = await anext(chunks, None)
        return None if chunk is None else await _promised(chunk, run, manifest)

    ahead = asyncio.create_task(following())
    try:
        while (parcels := await ahead) is not None:
            ahead = asyncio.create_task(following())
            for parcel in parcels:
                yield parcel
    finally:
        ahead.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await ahead


async def _promised(chunk: Sequence[Item], run: str, manifest: Manifest) -> list[Parcel]:
    """The chunk's items in order, once the ledger has those that are jobs: to be published, or settled."""
    first = told_apart(chunk)
    pending = [item for item in first if isinstance(item, Pending)]
    answers = await manifest.promise(run, [item.job for item in pending]) if pending else []
    known = dict(zip((item.number for item in pending), answers, strict=True))
    return [
        _parcel(item, known[item.number]) if isinstance(item, Pending) else Parcel(None, item)
        for item in first
    ]


def told_apart(chunk: Sequence[Item]) -> list[Item]:
    """The chunk with a fate for each item whose key came before in it: a key may be promised once a call."""
    seen: dict[tuple[str, str], Pending] = {}
    return [_first_or_fate(item, seen) if isinstance(item, Pending) else item for item in chunk]


def _first_or_fate(item: Pending, seen: dict[tuple[str, str], Pending]) -> Item:
    earlier = seen.setdefault((item.job.lane, item.job.key), item)
    if earlier is item:
        return item
    before = f"item {earlier.number}" if earlier.source is None else str(earlier.source)
    if earlier.job.fingerprint == item.job.fingerprint:
        return Enqueued(item.number, item.job, Fate.DUPLICATE, f"repeats {before}", item.source)
    detail = f"{before} has this key with other content"
    return Enqueued(item.number, item.job, Fate.CONFLICT, detail, item.source)


def _parcel(item: Pending, answer: Manifested) -> Parcel:
    match answer:
        case Manifested.NEW | Manifested.OPEN:
            return Parcel(item.job, (item, answer))
        case Manifested.DUPLICATE:
            return Parcel(None, Enqueued(item.number, item.job, Fate.DUPLICATE, "", item.source))
        case Manifested.CONFLICT:
            detail = "its key is taken by a job with other content"
            return Parcel(None, Enqueued(item.number, item.job, Fate.CONFLICT, detail, item.source))
        case _:
            assert_never(answer)
