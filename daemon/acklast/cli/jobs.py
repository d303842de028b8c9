"""``acklast jobs``: the account of one job."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from acklast.cli.exits import epilog
from acklast.cli.missing import missing
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import line, people, plain, say_json
from acklast.cli.servers import ledger_of
from acklast.cli.timeline import timeline
from acklast.config import Config
from acklast.errors import AcklastError, Exit
from acklast.ledger.api import JobView

app = typer.Typer(help="Single jobs.")


class NoSuchJob(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    exit = Exit.NOT_FOUND


@app.callback()
def _group() -> None:
    """Single jobs."""


@app.command(epilog=epilog(Exit.NOT_FOUND))
def show(
    key: Annotated[str, typer.Argument(help="The job's key.")],
    lane: Annotated[str | None, typer.Option("--lane", "-l", help="The lane; otherwise every lane.")] = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show what happened to a job: its state, and its life as a timeline."""
    jobs = asyncio.run(_jobs(configured(config), key, lane))
    if not jobs:
        place = f"in lane {lane!r}" if lane else "in any lane"
        raise NoSuchJob(
            f"the ledger knows no job {key!r} {place}",
            "Check the key, or see the dead letters: it may be malformed",
        )
    if as_json:
        say_json({"key": key, "jobs": [plain(job) | {"timeline": plain(timeline(job))} for job in jobs]})
    else:
        for job in jobs:
            tell(people(), job)
    return Exit.OK


app.command(epilog=epilog(Exit.UNFIT, incomplete="jobs missing"))(missing)


async def _jobs(config: Config, key: str, lane: str | None) -> Sequence[JobView]:
    async with ledger_of(config) as ledger:
        return await ledger.jobs(key, lane)


def tell(console: Console, job: JobView) -> None:
    """Print one job's account for people."""
    console.print(f"{job.key} in lane {job.lane}: {job.state}{f' ({job.reason})' if job.reason else ''}")
    for name, value in _facts(job):
        console.print(f"  {name:<13} {value}")
    moments = timeline(job)
    width = max(len(moment.what) for moment in moments)
    for moment in moments:
        console.print(f"  {_time(moment.at)}  {moment.what:<{width}}  {moment.detail}".rstrip())


def _facts(job: JobView) -> list[tuple[str, str]]:
    facts = [
        ("type", job.type),
        ("run", job.run),
        ("attempts", str(job.attempts)),
        ("rate limited", f"{job.rate_limited} times" if job.rate_limited else None),
        ("ambiguous", "yes: an earlier attempt may have had its effect" if job.ambiguous else None),
        ("result", line(job.result) if job.result is not None else None),
    ]
    return [(name, value) for name, value in facts if value is not None]


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
