"""``acklast enqueue``: the rows of a file, of standard input or of a query become the jobs of a run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import typer

from acklast import faults
from acklast.cli.bar import bar
from acklast.cli.dry_run import dry_run as look_at
from acklast.cli.dry_run import lines
from acklast.cli.enqueue_options import (
    Deadline,
    DryRun,
    FileName,
    Format,
    HowOnError,
    JobType,
    KeyText,
    Labels,
    LaneName,
    OnError,
    Owner,
    ReportFile,
    RunDeadline,
    RunId,
    SourceDsn,
    SourceDsnFile,
    Sql,
)
from acklast.cli.given import Input, input_of, opened
from acklast.cli.lane_target import As, operator_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.order import Order, spread
from acklast.cli.pace import concerned
from acklast.cli.refused_rows import Put, refused_rows
from acklast.cli.servers import ledger_of, require_lane
from acklast.cli.tally import Tally
from acklast.config import Config, Custody, select
from acklast.errors import BrokerUnavailable, Exit, LedgerUnavailable, TopologyError
from acklast.ledger.about import RunAbout
from acklast.ledger.operate import Operator
from acklast.ledger.postgres import PostgresLedger
from acklast.manifest import LedgerManifest
from acklast.pacing.controls import Refused
from acklast.telemetry.publishing import Publishing, publishing_of
from acklast.telemetry.spans import Names as Places
from acklast.telemetry.tracing import server_of
from acklast.template import KeyTemplate
from acklast_topology.chunks import Chunking
from acklast_topology.enqueue import REPEATS
from acklast_topology.items import Given, require_run
from acklast_topology.job import Job
from acklast_topology.publish import BrokerUnreachable, Publisher, TopologyMissing

IN_FLIGHT: Final = 1024
CHUNKING: Final = Chunking()


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for."""

    order: Order
    lanes: Sequence[str]
    """The order's lane, or those of the fan-out that it names."""
    given: Input
    about: RunAbout
    stop: bool
    dry: bool
    operator: Operator


def enqueue(
    lane: LaneName,
    file: FileName = None,
    *,
    run: RunId,
    key: KeyText,
    format_: Format = None,
    sql: Sql = None,
    dsn: SourceDsn = None,
    dsn_file: SourceDsnFile = None,
    job_type: JobType = None,
    deadline: Deadline = None,
    on_error: HowOnError = OnError.SKIP,
    report: ReportFile = None,
    run_deadline: RunDeadline = None,
    owner: Owner = None,
    label: Labels = None,
    dry_run: DryRun = False,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Publish rows as jobs. Safe to repeat as a whole: what is known already is left alone.

    Items that are not accepted are told one by one; duplicates are fine.
    """
    order = Order(lane, run, template_of(key), job_type, moment_of(deadline, "--deadline"))
    _require_sound(order)
    about = about_of(moment_of(run_deadline, "--run-deadline"), owner, label or [])
    given = input_of(file, format_, sql, dsn, dsn_file)
    _require_report(on_error, report)
    loaded = configured(config)
    lanes = _lanes_of(loaded, lane, dry_run=dry_run)
    # A dry run looks at the lanes that share the budget as well.
    settings = select(loaded, concerned(loaded, lane) if dry_run and lane in loaded.lanes else lanes)
    tally = Tally(run, lane, as_json, dry=dry_run)
    ended = False
    try:
        with refused_rows(report, given.file) as put:
            stop, operator = on_error is OnError.STOP, operator_of(as_)
            plan = Plan(order, lanes, given, about, stop, dry_run, operator)
            ended = asyncio.run(_enqueue(settings, plan, tally, put))
    finally:
        # Whatever ended it early: what was done is told, and can be repeated.
        tally.tell(ended=ended)
    return tally.exit


def _lanes_of(config: Config, lane: str, *, dry_run: bool) -> Sequence[str]:
    """The lanes that get a job of each row: the one that is named, or those of the fan-out.

    Raises:
        Refused: a dry run of several lanes, which it cannot foretell.
    """
    lanes = config.fan_outs.get(lane, (lane,))
    if dry_run and lane in config.fan_outs:
        raise Refused(
            f"{lane!r} is a fan-out, and a dry run looks at one lane", f"Name one of {', '.join(lanes)}"
        )
    return lanes


def template_of(text: str) -> KeyTemplate:
    """The option's template; ``BadParameter`` where it is none."""
    try:
        return KeyTemplate.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint="--key") from None


def moment_of(text: str | None, option: str) -> datetime | None:
    """The option's RFC 3339 time, UTC; ``BadParameter`` where it is none, has no offset or is past."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        problem = "must have an offset: add Z or +hh:mm" if moment.tzinfo is None else ""
        moment = moment.astimezone(UTC)
        if not problem and moment <= datetime.now(UTC):
            problem = "lies in the past: nothing could be done by then"
    except (ValueError, OverflowError):  # the second within a day of the year 9999
        problem = "must be a time like 2030-01-31T18:00:00+01:00"
    if problem:
        raise typer.BadParameter(f"{text!r} {problem}", param_hint=option)
    return moment


def _require_sound(order: Order) -> None:
    """See that what all jobs have in common is no mistake: told once, and not for each row."""
    try:
        require_run(order.run)
        Job("lane", "key", b"", type=order.type, run=order.run)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--run or --type") from None


def about_of(deadline: datetime | None, owner: str | None, labels: Sequence[str]) -> RunAbout:
    """What is said of the run; ``BadParameter`` where it cannot be kept."""
    pairs = [label.partition("=") for label in labels]
    if not all(equals for _, equals, _ in pairs):
        raise typer.BadParameter("must be NAME=VALUE", param_hint="--label")
    try:
        return RunAbout(deadline, owner, {name: value for name, _, value in pairs})
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _require_report(on_error: OnError, report: Path | None) -> None:
    if on_error is OnError.REPORT and report is None:
        raise typer.BadParameter("needs a file: --report FILE", param_hint="--on-error report")
    if report is not None and on_error is not OnError.REPORT:
        raise typer.BadParameter("goes with --on-error report", param_hint="--report")


async def _enqueue(config: Config, plan: Plan, tally: Tally, put: Put) -> bool:
    """Feed the input; whether all of it was read."""
    if plan.dry:
        return await _look(config, plan, tally, put)
    for lane in plan.lanes:
        await require_lane(config, lane)
    with opened(plan.given, plan.order) as jobs:
        await _feed(config, plan, spread(jobs, plan.lanes), tally, put)
    return not plan.stop or tally.complete


async def _look(config: Config, plan: Plan, tally: Tally, put: Put) -> bool:
    """Tell what feeding would come to; whether all of it was read."""
    deadline = plan.about.deadline or plan.order.deadline
    with opened(plan.given, plan.order) as jobs:
        found = await look_at(config, plan.order, deadline, jobs, plan.given.size, tally, put)
    tally.more, tally.below = found.document, tuple(lines(found))
    return True


async def _feed(
    config: Config, plan: Plan, jobs: Iterable[Given] | AsyncIterable[Given], tally: Tally, put: Put
) -> None:
    lane, read = plan.order.lane, 0
    async with ledger_of(config) as ledger, _publisher(config) as publisher, _traced(config) as traced:
        manifest = LedgerManifest(ledger, custody=_kept(config), about=plan.about)
        items = publisher.enqueue_many(
            traced.of(jobs) if traced else jobs,
            run=plan.order.run,
            manifest=manifest,
            stop=plan.stop,
            chunking=CHUNKING,
        )
        try:
            with bar(plan.given.size, f"enqueue {lane}") as progress:
                tally.say = progress.say
                async with aclosing(items):  # type: ignore[type-var]
                    async for item in items:
                        tally.add(item)
                        if traced:
                            traced.told(item)
                        if not item.fine:
                            put(item)
                        read = max(read, item.source.read)
                        progress.rows(tally.rows, read)
                        if faults.ARMED:
                            faults.point("confirmed")
        finally:
            await _put_down(ledger, plan, tally)


async def _put_down(ledger: PostgresLedger, plan: Plan, tally: Tally) -> None:
    """Who enqueued how many: the run's jobs themselves are in the ledger, whatever ended the command."""
    if not tally.rows:
        return
    effect = {"counts": {fate.value: count for fate, count in tally.counts.items()}}
    order = plan.order
    with suppress(LedgerUnavailable):  # what ended the command, most likely
        await ledger.note(plan.operator, "enqueue", effect, lane=order.lane, run=order.run)


def _kept(config: Config) -> list[str]:
    """The lanes whose messages the ledger keeps."""
    return [name for name, lane in config.lanes.items() if lane.custody is Custody.LEDGER]


@asynccontextmanager
async def _traced(config: Config) -> AsyncIterator[Publishing | None]:
    """What gives each job its trace, where traces are exported."""
    places = Places(config.names.work("{lane}"), server_of(config.broker.addresses()))
    made = publishing_of(os.environ, places, config.names.ingress, version=config.version)
    try:
        yield made
    finally:
        if made is not None:
            await made.close()


@asynccontextmanager
async def _publisher(config: Config) -> AsyncIterator[Publisher]:
    publisher = Publisher.connect(
        config.broker.addresses(),
        names=config.names,
        in_flight=IN_FLIGHT,
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
