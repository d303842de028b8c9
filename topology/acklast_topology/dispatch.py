"""Jobs on their way to the broker: sent in batches, a publish whose result is unknown repeated."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from acklast_topology.job import Job
from acklast_topology.sender import Sent, Status
from acklast_topology.streaming import Flow

_NOT_SENT: Final = Sent(Status.UNKNOWN)
_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 2.0


@dataclass(slots=True)
class Parcel:
    """A job on its way, and what its sender knows it by. Without a job it passes, and is not published."""

    job: Job | None
    note: Any = None
    sent: Sent = _NOT_SENT
    tries: int = 0


SendAll: TypeAlias = Callable[[Sequence[Parcel], Callable[[Parcel, Sent], None]], Awaitable[None]]
"""Publishes parcels, and calls back once for each."""


def pause_s(tries: int) -> float:
    """How long to wait before a publish is repeated for the ``tries``-th time, from 0."""
    return float(min(_PAUSE_S * 2 ** min(tries, 10), _MAX_PAUSE_S))


def dispatched(
    send_all: SendAll, parcels: Iterable[Parcel] | AsyncIterable[Parcel], in_flight: int, retries: int
) -> AsyncIterator[Parcel]:
    """Publish as fast as the broker confirms; yields each parcel once it has ``sent``.

    A publish whose result is unknown is repeated up to ``retries`` times: the ledger removes duplicates.
    """

    async def begin(batch: Sequence[Parcel], flow: Flow[Parcel, Parcel]) -> None:
        def settle(parcel: Parcel, sent: Sent) -> None:
            if sent.status is Status.UNKNOWN and parcel.tries < retries:
                flow.again(parcel, pause_s(parcel.tries))
                parcel.tries += 1
                return
            parcel.sent = sent
            flow.done(parcel)

        for parcel in batch:
            if parcel.job is None:
                flow.done(parcel)
        jobs = [parcel for parcel in batch if parcel.job is not None]
        if jobs:
            await send_all(jobs, settle)

    return Flow(begin, in_flight).results(parcels)
