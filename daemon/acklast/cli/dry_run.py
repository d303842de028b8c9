"""``acklast enqueue --dry-run``: what would become of each row, and when the run would be finished."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from acklast.cli.bar import bar
from acklast.cli.lane_view import views
from acklast.cli.order import Order, Source
from acklast.cli.output import plain
from acklast.cli.pace import Paces, concerned, paces
from acklast.cli.queues import look
from acklast.cli.refused_rows import Put
from acklast.cli.seen import Came, Seen
from acklast.cli.spans import moment, span
from acklast.cli.tally import Tally
from acklast.config import Config, select
from acklast.errors import LedgerUnavailable
from acklast.forecast import Effect, Forecast, Load, forecast, joined
from acklast.ledger.connect import Address
from acklast.ledger.preview import Preview
from acklast.ledger.standing import Standing, read_standing
from acklast_topology.items import Enqueued, Entry, Fate, Given, Manifested, NoJob
from acklast_topology.job import Job

FIRST_KEYS: Final = 5
_AT_ONCE: Final = 1000
_FATES: Final = {
    Manifested.NEW: Fate.ACCEPTED,
    Manifested.OPEN: Fate.AGAIN,
    Manifested.DUPLICATE: Fate.DUPLICATE,
    Manifested.CONFLICT: Fate.CONFLICT,
}


@dataclass(slots=True)
class Found:
    """What a dry run came to, besides the rows' fates."""

    keys: list[str] = field(default_factory=list)
    """The first ones."""
    cast: Forecast | None = None
    now: datetime | None = None
    notes: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        """What the summary has more of than that of an enqueue."""
        cast = None if self.cast is None else _document(self.cast)
        return {"dry_run": True, "first_keys": self.keys, "forecast": cast, "notes": list(self.notes)}


async def dry_run(
    config: Config,
    order: Order,
    deadline: datetime | None,
    jobs: Iterable[Given] | AsyncIterable[Given],
    size: int | None,
    tally: Tally,
    put: Put,
) -> Found:
    """Read the whole input, promise and publish nothing. Hashes of the keys are kept in memory, no rows.

    Raises:
        LedgerUnavailable: the ledger does not answer.
    """
    found, seen, read = Found(), Seen(), 0
    server = config.ledger
    address = Address.of(server.address(), allow_unsafe_server=server.allow_unsafe_server)
    async with Preview.connect(address) as preview:
        with bar(size, f"look at {order.lane}") as progress:
            tally.say = progress.say
            async for piece in _pieces(jobs):
                for item in await _fates(preview, piece, seen, tally.rows):
                    tally.add(item)
                    if not item.fine:
                        put(item)
                    if item.job is not None and len(found.keys) < FIRST_KEYS:
                        found.keys.append(item.job.key)
                    read = max(read, item.source.read)
                progress.rows(tally.rows, read)
        new = Load(order.lane, order.run, tally.counts[Fate.ACCEPTED], deadline)
        await _foretell(config, preview, new, found)
    return found


async def _pieces(given: Iterable[Given] | AsyncIterable[Given]) -> AsyncIterator[list[Given]]:
    piece: list[Given] = []
    if isinstance(given, AsyncIterable):
        async for one in given:
            piece.append(one)
            if len(piece) >= _AT_ONCE:
                yield piece
                piece = []
    else:
        for one in given:
            piece.append(one)
            if len(piece) >= _AT_ONCE:
                yield piece
                piece = []
    yield piece


async def _fates(preview: Preview, piece: Sequence[Given], seen: Seen, before: int) -> list[Enqueued]:
    """What would become of each; the place of each in the input is its number."""
    items = [_item(before + n, one, seen) for n, one in enumerate(piece, 1)]
    asked = [item for item in items if item.fate is Fate.ACCEPTED and item.job is not None]
    answers = await preview.answers([item.job for item in asked if item.job is not None])
    known = {item.number: answer for item, answer in zip(asked, answers, strict=True)}
    return [_answered(item, known[item.number]) if item.number in known else item for item in items]


def _item(number: int, one: Given, seen: Seen) -> Enqueued:
    match one:
        case NoJob(problem, source):
            return Enqueued(number, None, Fate.MALFORMED, problem, source)
        case Entry(job, source):
            return _first(number, job, source, seen)
        case Job():
            return _first(number, one, Source(number), seen)


def _first(number: int, job: Job, source: Any, seen: Seen) -> Enqueued:
    came, place = seen.add(job.key, job.fingerprint, source.line)
    match came:
        case Came.FIRST:
            return Enqueued(number, job, Fate.ACCEPTED, "", source)
        case Came.AGAIN:
            return Enqueued(number, job, Fate.DUPLICATE, f"repeats line {place}", source)
        case Came.OTHER:
            return Enqueued(
                number, job, Fate.CONFLICT, f"line {place} has this key with other content", source
            )


def _answered(item: Enqueued, answer: Manifested) -> Enqueued:
    detail = "its key is taken by a job with other content" if answer is Manifested.CONFLICT else ""
    return Enqueued(item.number, item.job, _FATES[answer], detail, item.source)


# --- the forecast -----------------------------------------------------------------------------------------


async def _foretell(config: Config, preview: Preview, new: Load, found: Found) -> None:
    lanes = concerned(config, new.lane)
    standing = await read_standing(preview.operations)
    try:
        loads = [Load(one.lane, one.run, one.jobs, one.deadline) for one in await preview.open(lanes)]
    except LedgerUnavailable as error:
        found.notes = (f"no forecast: what is open could not be counted ({error.what})",)
        return
    config = select(config, lanes)
    standing = _of(standing, lanes)
    queues, blind = await look(config, lanes)
    lane_views = views(config, standing, queues)
    known: Paces = paces(config, lane_views)
    waiting = {view.lane: view.waiting + view.in_flight for view in lane_views if view.waiting is not None}
    notes = list(known.notes)
    if blind is not None:
        notes.append(f"what only the broker knows of could not be seen: {blind}")
    found.now = standing.now
    found.cast = forecast(standing.now, joined(loads, waiting), new, known.lanes, known.budgets)
    found.notes = (*notes, "reckoned without failures and retries, and as if the handlers kept up")


def _of(standing: Standing, lanes: Sequence[str]) -> Standing:
    """The standing of these lanes alone: others, that only other daemons serve, are of no interest."""
    reported = {lane: daemons for lane, daemons in standing.lanes.items() if lane in lanes}
    controls = tuple(one for one in standing.controls if one.target != "lane" or one.name in lanes)
    return Standing(standing.now, standing.changed, reported, standing.pauses, controls)


def _document(cast: Forecast) -> dict[str, Any]:
    return {
        "jobs": cast.jobs,
        "before": cast.before,
        "finish": plain(cast.finish),
        "deadline": plain(cast.deadline),
        "met": cast.met,
        "others": [
            {
                "run": effect.run,
                "jobs": effect.jobs,
                "deadline": plain(effect.deadline),
                "finish_without": plain(effect.without),
                "finish_with": plain(effect.with_),
                "met_without": effect.met_without,
                "met_with": effect.met_with,
            }
            for effect in cast.effects
        ],
    }


def lines(found: Found) -> Iterator[str]:
    """The same for people, below the counts."""
    if found.keys:
        yield f"first keys: {', '.join(found.keys)}"
    if found.cast is not None and found.now is not None:
        yield from _told(found.cast, found.now)
    for note in found.notes:
        yield f"note: {note}"


def _told(cast: Forecast, now: datetime) -> Iterator[str]:
    yield (
        f"forecast: {cast.jobs:,} jobs, {cast.before:,} of others in the lane before them;"
        f" finished {_when(cast.finish, now)}{_against(cast.deadline, cast.met, now)}"
    )
    for effect in cast.effects:
        yield f"  run {effect.run}, {effect.jobs:,} open jobs: {_effect(effect, now)}"


def _effect(effect: Effect, now: datetime) -> str:
    change = _OUTCOME[effect.met_without, effect.met_with]
    return (
        f"finished {_when(effect.without, now)} without this, {_when(effect.with_, now)} with it;"
        f" its deadline {moment(effect.deadline, now)} {change}"
    )


_OUTCOME: Final[Mapping[tuple[bool | None, bool | None], str]] = {
    (True, True): "is met",
    (True, False): "is met without this, and missed with it",
    (False, False): "is missed either way",
    (False, True): "is missed without this",
    (None, None): "may be met or not",
    (True, None): "is met without this; with it nobody can tell",
    (False, None): "is missed without this",
    (None, True): "is met with this",
    (None, False): "is missed with this",
}


def _when(at: datetime | None, now: datetime) -> str:
    return (
        "nobody can tell when" if at is None else f"in {span((at - now).total_seconds())}, {moment(at, now)}"
    )


def _against(deadline: datetime | None, met: bool | None, now: datetime) -> str:
    if deadline is None:
        return ""
    outcome = "may be met or not" if met is None else "is met" if met else "is missed"
    return f"; the deadline {moment(deadline, now)} {outcome}"
