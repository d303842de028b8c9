"""The options of ``acklast enqueue``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from acklast.cli.rows import Kind


class OnError(StrEnum):
    STOP = "stop"
    """Stop at the first item that is not accepted; what came before it is done."""
    SKIP = "skip"
    """Go on, and tell all of them."""
    REPORT = "report"
    """The same, and write them into a file."""


LaneName: TypeAlias = Annotated[str, typer.Argument(help="The lane that is to do the jobs.")]
FileName: TypeAlias = Annotated[
    Path | None,
    typer.Argument(
        help="A .csv file (with a header row) or .jsonl, or '-' for standard input.",
    ),
]
RunId: TypeAlias = Annotated[str, typer.Option(help="The run's id: the jobs are its manifest.")]
KeyText: TypeAlias = Annotated[
    str, typer.Option(metavar="TEMPLATE", help="Each job's key, such as '{run}:{property_id}'.")
]
Format: TypeAlias = Annotated[
    Kind | None, typer.Option("--format", help="What the input is, where its name does not say.")
]
Sql: TypeAlias = Annotated[
    str | None, typer.Option(metavar="QUERY|@FILE", help="The rows of a query, instead of a file.")
]
SourceDsn: TypeAlias = Annotated[
    str | None,
    typer.Option(envvar="ACKLAST_SOURCE_DSN", help="The database of --sql. Others can see it here."),
]
SourceDsnFile: TypeAlias = Annotated[Path | None, typer.Option(help="A file that holds it.")]
JobType: TypeAlias = Annotated[
    str | None, typer.Option("--type", help="The jobs' type; not needed where the lane has one handler.")
]
Deadline: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="Start no job after this (RFC 3339 with an offset).")
]
HowOnError: TypeAlias = Annotated[OnError, typer.Option(help="What to do with an item that is not accepted.")]
ReportFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(dir_okay=False, help="Where --on-error report writes what was not accepted."),
]
RunDeadline: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="When the whole run is to be finished; it stops nothing.")
]
Owner: TypeAlias = Annotated[str | None, typer.Option(help="Whose run it is.")]
Labels: TypeAlias = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Of the run; may be repeated.")
]
DryRun: TypeAlias = Annotated[
    bool,
    typer.Option("--dry-run", help="Promise and publish nothing: tell what would happen, and until when."),
]
