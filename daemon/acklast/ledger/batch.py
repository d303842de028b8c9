"""Group commit: ``claim`` and ``record`` look like one call per job and travel together.

One flush is in flight at a time. Whatever waits when it returns goes with the next one, at once: a lone job
pays one round trip, a flood pays a share of one commit. Nothing here knows SQL.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from time import monotonic
from typing import Any, Final, TypeAlias

from acklast.apart import apart
from acklast.errors import LedgerUnavailable
from acklast.ledger.api import Claim, Claimed, Fresh, Record, Recorded
from acklast.ledger.changes import Change
from acklast.ledger.connect import Unsent
from acklast.ledger.notes import Claims, Notes, Place
from acklast.ledger.refusals import Locked, ledger_closed
from acklast.progress import Part, Round

_log = logging.getLogger(__name__)

LIMIT: Final = 500
"""Items of one flush. Measured: a cap of 50 costs 40 % of the throughput, and more than 500 gains nothing."""
LIMIT_BYTES: Final = 8 * 2**20
"""Of the messages of one flush; one alone may have more. Postgres closes the connection over a
message of a gigabyte: a hundred bodies of 16 MB in one flush would be tried again for ever."""
LINGER_S: Final = 0.0035
NOTES: Final = 1000
"""Notes of acknowledgements ride along once there are so many: the more, the fewer gaps between their
tickets, and the flush of a lone job should carry nothing but the job."""
LONELY_S: Final = 1.0
"""How long fewer notes than that wait before they go."""
ASK_AGAIN_S: Final = 10.0
"""How long a job that another transaction keeps locked is asked for before its caller is told."""
CLOSE_S: Final = 3.0
"""For what is left to flush at the end. A ledger that answers takes a moment; where one that does not were
waited for, a service manager would end the process before its last word.
"""
_STILL_S: Final = 120.0
"""How long a flush may take: it is sent twice, over connections that have time limits."""

Answer: TypeAlias = Claimed | Recorded | Exception


@dataclass(slots=True, eq=False)
class Item:
    """One call that waits for its answer: a claim, a record, or (neither) the release of claim ``ticket``."""

    ticket: int
    session: int
    place: Place
    claim: Claim | None = None
    record: Record | None = None
    change: Change | None = None
    future: asyncio.Future[Any] | None = None
    asked: int = 0
    since: float = 0.0
    """When it was first found locked, on the monotonic clock."""
    size: int = 0
    """Bytes of the message that it carries."""

    def resolve(self, answer: Answer) -> None:
        if self.future is None or self.future.done():
            return
        if isinstance(answer, Exception):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


@dataclass(slots=True)
class Batch:
    """What one flush carries: items of one session, no job twice, sorted; and notes of acknowledgements."""

    items: list[Item] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)

    def parts(self) -> Iterator[Batch]:
        """The same, one item at a time."""
        yield from (Batch([item]) for item in self.items)
        if self.notes:
            yield Batch(notes=self.notes)


Send: TypeAlias = Callable[[Batch], Awaitable[Mapping[int, Answer]]]
"""Does a batch; answers by ticket. An item without an answer is asked again.

Must be safe to repeat. Raises LedgerUnavailable where it may or may not have been done, anything else where
the whole batch was refused and nothing was done.
"""


def linger_s(last: int, waiting: int) -> float:
    """How long to wait for company before the next flush.

    Only under pressure: the last flush was well filled and few wait yet. A lone job never waits.
    """
    return LINGER_S if last >= 16 and waiting < 64 else 0.0


def again_after_s(asked: int) -> float:
    """How long to leave a job alone that was found locked ``asked`` times."""
    return float(min(0.001 * 2**asked, 0.25))


class Batcher:
    """Collects calls, flushes them through ``send``, and answers each caller alone."""

    def __init__(self, send: Send, on_flush: Callable[[int, float, bool], None] | None = None) -> None:
        """``on_flush`` is told of each statement: how many claims and verdicts, how long, whether it was
        answered."""
        self._send = send
        self._on_flush = on_flush
        # Claims have consecutive tickets, so that what is told of many of them is told of a range.
        self._tickets = itertools.count(1 + secrets.randbelow(2**62))
        self._numbers = itertools.count(-1, -1)
        self._queue: deque[Item] = deque()
        self._releases: list[Item] = []
        self._claims = Claims()
        self._notes = Notes()
        self._delayed: set[Item] = set()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lonely = False
        self._closed = False
        self._round = Round()

    # --- what callers do ----------------------------------------------------------------------------

    def claim(self, session: int, claim: Claim) -> asyncio.Future[Claimed]:
        """The answer to a claim, to be awaited. A caller that is cancelled leaves no claim behind."""
        item = Item(next(self._tickets), session, (claim.lane, claim.key), claim)
        if claim.kept is not None:
            item.size = len(claim.kept.body)
        return self._submit(item)

    def record(self, session: int, record: Record, change: Change) -> asyncio.Future[Recorded]:
        """Done when a verdict is recorded. It is recorded even if the caller is cancelled meanwhile."""
        place = (record.lane, record.key)
        item = Item(next(self._numbers), session, place, None, record, change)
        if change.letter is not None:
            item.size = len(change.letter.payload)
        elif record.follow_ups:
            item.size = sum(len(job.payload) for job in record.follow_ups)
        return self._submit(item)

    def part(self, now: float) -> Part:
        """Whether what was asked is worked on, at a moment of the monotonic clock."""
        busy = self._task is not None or bool(self._queue)
        return Part("the flush to the ledger", now - self._round.at if busy else 0.0, _STILL_S)

    def note(self, place: Place, fence: int) -> None:
        """Remember for a later flush that the delivery of this fence was acknowledged."""
        self._claims.settle(place, fence, self._notes)
        self._arm()

    async def close(self) -> None:
        """Take nothing more, flush what waits, and fail what cannot be flushed in ``CLOSE_S``."""
        self._closed = True
        self._disarm()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._run_out()
        except TimeoutError:
            _log.warning("ledger closed with work unflushed")
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for item in (*self._queue, *self._delayed):
            item.resolve(ledger_closed())

    # --- the flusher --------------------------------------------------------------------------------

    def _submit(self, item: Item) -> asyncio.Future[Any]:
        if self._closed:
            raise ledger_closed()
        item.future = asyncio.get_running_loop().create_future()
        self._queue.append(item)
        self._wake()
        return item.future

    def _wake(self) -> None:
        # A new task starts in the loop's next round: whatever else this round asks for comes along.
        if self._task is None:
            self._round.again()
            self._task = apart(self._run(), name="ledger flush")

    async def _run(self) -> None:
        last = 0
        try:
            while self._queue or self._lonely:
                if pause_s := linger_s(last, len(self._queue)):
                    await asyncio.sleep(pause_s)
                batch = self._take()
                self._lonely = False
                if batch.items or batch.notes:
                    await self._flush(batch)
                last = len(batch.items)
        finally:
            self._task = None
            if self._notes or self._releases:
                self._arm()

    def _take(self) -> Batch:
        """The next batch. What has to wait for another one keeps its place in the queue."""
        batch, places, size = Batch(), set[Place](), 0
        later: list[Item] = []
        session = (self._releases or self._queue)[0].session if self._releases or self._queue else 0
        # Releases first: the same job may be asked for again by a delivery that waits already.
        queue = deque(self._releases)
        self._releases = []
        for source in (queue, self._queue):
            while source and len(batch.items) < LIMIT and size < LIMIT_BYTES:
                item = source.popleft()
                if item.claim is not None and item.future is not None and item.future.done():
                    continue  # its caller has gone, and nothing is claimed yet
                fits = item.session == session and item.place not in places
                fits = fits and (size + item.size <= LIMIT_BYTES or not batch.items)
                places.add(item.place)
                size += item.size if fits else 0
                (batch.items if fits else later).append(item)
        self._queue.extendleft(reversed([*queue, *later]))
        batch.items.sort(key=attrgetter("place"))
        if self._lonely or len(self._notes) >= NOTES:
            batch.notes, self._notes = self._notes.without(places)
        return batch

    async def _flush(self, batch: Batch) -> None:
        doubtful = False
        for repeated in (False, True):
            try:
                self._answer(batch, await self._sent(batch))
                return
            except LedgerUnavailable as error:
                # Once more, on a new connection: it is harmless, and one lost connection is no outage.
                doubtful = doubtful or not isinstance(error, Unsent)
                if repeated:
                    self._give_up(batch, error, doubtful=doubtful)
            except asyncio.CancelledError:
                self._give_up(batch, ledger_closed(), doubtful=True)
                raise
            except Exception as error:
                await self._one_by_one(batch, error)
                return

    async def _sent(self, batch: Batch) -> Mapping[int, Answer]:
        self._round.again()
        began, ok = monotonic(), False
        try:
            answers = await self._send(batch)
            ok = True
            return answers
        finally:
            if self._on_flush is not None and batch.items:
                self._on_flush(len(batch.items), monotonic() - began, ok)

    async def _one_by_one(self, batch: Batch, cause: Exception) -> None:
        """After a refused flush: everything in it alone, so that only what is refused again fails."""
        _log.warning("ledger flush of %d refused, trying one by one: %s", len(batch.items), cause)
        away: LedgerUnavailable | None = None
        for part in batch.parts():
            if away is not None:
                # An outage has begun meanwhile: to wait for it once is enough.
                self._give_up(part, away, doubtful=False)
                continue
            try:
                self._answer(part, await self._sent(part))
            except LedgerUnavailable as error:
                away = error
                self._give_up(part, error, doubtful=True)
            except Exception as error:
                for item in part.items:
                    item.resolve(error)

    def _answer(self, batch: Batch, answers: Mapping[int, Answer]) -> None:
        for item in batch.items:
            answer = answers.get(item.ticket)
            if answer is None:
                self._ask_again(item)
            elif not isinstance(answer, Fresh):
                item.resolve(answer)
            elif item.future is None or item.future.done():
                self._release(item)
            else:
                self._claims.given(item.place, answer.fence, item.session, item.ticket)
                item.resolve(answer)

    def _ask_again(self, item: Item) -> None:
        item.asked += 1
        if item.asked == 1:
            item.since = monotonic()
        if monotonic() - item.since > ASK_AGAIN_S and item.future is not None:
            item.resolve(Locked(*item.place))
            return
        self._delayed.add(item)
        asyncio.get_running_loop().call_later(again_after_s(item.asked), self._requeue, item)

    def _requeue(self, item: Item) -> None:
        if item in self._delayed:
            self._delayed.remove(item)
            self._queue.appendleft(item)
            self._wake()

    def _give_up(self, batch: Batch, error: LedgerUnavailable, *, doubtful: bool) -> None:
        for item in batch.items:
            item.resolve(error)
            if item.claim is not None and doubtful:
                self._release(item)
            elif item.claim is None and item.record is None:
                self._releases.append(item)
        self._notes.add(batch.notes)

    def _release(self, item: Item) -> None:
        """Give a claim back that was made, or may have been, for a caller who does not know of it.

        Without this our own living session would hold the job until it ends.
        """
        self._releases.append(Item(item.ticket, item.session, item.place))
        self._arm()

    # --- what waits for company ---------------------------------------------------------------------

    def _arm(self) -> None:
        if self._timer is None and self._task is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(LONELY_S, self._leave_alone)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave_alone(self) -> None:
        self._timer = None
        self._lonely = True
        self._wake()

    async def _run_out(self) -> None:
        self._lonely = bool(self._notes or self._releases)
        if self._lonely:
            self._wake()
        while self._task is not None or self._delayed:
            if self._task is not None:
                await asyncio.wait([self._task])
            else:
                for item in list(self._delayed):
                    self._requeue(item)
