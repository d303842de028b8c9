"""``acklast enqueue``: a file's rows become the jobs of a run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from acklast.cli.bar import bar
from acklast.cli.feed import Order, chunks, feed, work_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.rows import DataError, Kind, read_rows
from acklast.cli.servers import ledger_of, require_lane
from acklast.cli.tally import Tally
from acklast.config import Config, Custody, select
from acklast.errors import BrokerUnavailable, Exit, TopologyError
from acklast.template import KeyTemplate
from acklast_topology.publish import BrokerUnreachable, Publisher, TopologyMissing

REPEATS: Final = 3
"""How often a publish whose result is unknown is repeated before the item is told as unknown."""


class OnError(StrEnum):
    STOP = "stop"
    """Stop at the first item that is not accepted; what came before it is done."""
    SKIP = "skip"
    """Go on, and tell all of them."""


def enqueue(
    lane: Annotated[str, typer.Argument(help="The lane that is to do the jobs.")],
    file: Annotated[
        Path,
        typer.Argument(
            exists=True, dir_okay=False, readable=True, help="A .csv file (with a header row) or .jsonl."
        ),
    ],
    run: Annotated[str, typer.Option(help="The run's id: the jobs are its manifest.")],
    key: Annotated[
        str, typer.Option(metavar="TEMPLATE", help="Each job's key, such as '{run}:{property_id}'.")
    ],
    job_type: Annotated[
        str | None, typer.Option("--type", help="The jobs' type; not needed where the lane has one handler.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start no job after this (RFC 3339 with an offset).")
    ] = None,
    on_error: Annotated[
        OnError, typer.Option(help="What to do with an item that is not accepted.")
    ] = OnError.SKIP,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Publish a file's rows as jobs. Safe to repeat as a whole: what is known already is left alone.

    Items that are not accepted are told one by one; duplicates are fine.
    """
    order = Order(lane, run, template_of(key), job_type, moment_of(deadline) if deadline else None)
    kind = kind_of(file)
    settings = select(configured(config), [lane])
    tally = Tally(run, lane, as_json)
    ended = False
    try:
        with file.open("rb") as stream:
            ended = asyncio.run(_enqueue(settings, order, stream, kind, tally, on_error is OnError.STOP))
    finally:
        # Whatever ended it early: what was done is told, and can be repeated.
        tally.tell(ended=ended)
    return tally.exit


def template_of(text: str) -> KeyTemplate:
    """The option's template; ``BadParameter`` where it is none."""
    try:
        return KeyTemplate.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint="--key") from None


def moment_of(text: str) -> datetime:
    """The option's RFC 3339 time, UTC; ``BadParameter`` where it is none, has no offset or is past."""
    try:
        moment = datetime.fromisoformat(text)
        problem = "must have an offset: add Z or +hh:mm" if moment.tzinfo is None else ""
        if not problem and moment <= datetime.now(UTC):
            problem = "lies in the past: no job would be started"
    except ValueError:
        problem = "must be a time like 2030-01-31T18:00:00+01:00"
    if problem:
        raise typer.BadParameter(f"{text!r} {problem}", param_hint="--deadline")
    return moment.astimezone(UTC)


def kind_of(file: Path) -> Kind:
    """CSV or JSON lines, by the file's name."""
    try:
        return Kind(file.suffix.lower().removeprefix("."))
    except ValueError:
        kinds = " or ".join(f".{kind}" for kind in Kind)
        raise DataError(f"{file} is neither CSV nor JSON lines by its name", f"Name it {kinds}") from None


async def _enqueue(
    config: Config, order: Order, stream: BinaryIO, kind: Kind, tally: Tally, stop: bool
) -> bool:
    """Feed the file; whether all of it was read."""
    entries = read_rows(stream, kind, order.key.fields)
    pieces = chunks((work_of(entry, order) for entry in entries), end_at_bad=stop)
    await require_lane(config, order.lane)
    async with ledger_of(config) as ledger, _publisher(config) as publisher:
        with bar(os.fstat(stream.fileno()).st_size, f"enqueue {order.lane}") as progress:
            tally.say = progress.say
            keep = config.lanes[order.lane].custody is Custody.LEDGER
            ended = lambda: stop and not tally.complete  # noqa: E731 - read once, below
            async for item in feed(ledger, publisher, order.run, pieces, ended, keep=keep):
                tally.add(item)
                progress.at(stream.tell(), f"{tally.rows} rows")
    return not stop or tally.complete


@asynccontextmanager
async def _publisher(config: Config) -> AsyncIterator[Publisher]:
    publisher = Publisher.connect(
        config.broker.addresses(),
        names=config.names,
        timeout_s=config.broker.publish_timeout_s,
        retries=REPEATS,
    )
    try:
        await publisher.__aenter__()
    except BrokerUnreachable as error:
        raise BrokerUnavailable(str(error), "See that RabbitMQ runs and that [broker] names it") from error
    except TopologyMissing as error:
        raise TopologyError(
            str(error), "The broker must have its topology before jobs can go there"
        ) from error
    try:
        yield publisher
    finally:
        await publisher.close()
