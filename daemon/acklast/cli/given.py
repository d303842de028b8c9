"""Where the rows of an enqueue come from: a file, standard input, or a SQL query."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import typer

from acklast.cli.order import Order, entry_of
from acklast.cli.rows import DataError, Entry, Kind, read_rows
from acklast.cli.sql_rows import sql_rows
from acklast.cli.threaded import Threaded
from acklast_topology.items import Given

STDIN: Final = Path("-")

Rows: TypeAlias = Iterable[Entry] | AsyncIterable[Entry]


@dataclass(frozen=True, slots=True)
class Query:
    """A SQL query and where it is asked."""

    sql: str
    dsn: str


@dataclass(frozen=True, slots=True)
class Input:
    """What is to be read. One of ``file`` and ``query`` is set."""

    file: Path | None = None
    kind: Kind | None = None
    query: Query | None = None

    @property
    def size(self) -> int | None:
        """Bytes in all; None where nobody knows before the end."""
        if self.file is None or self.file == STDIN or not self.file.is_file():
            return None
        return self.file.stat().st_size


def input_of(
    file: Path | None, kind: Kind | None, sql: str | None, dsn: str | None, dsn_file: Path | None
) -> Input:
    """The one source that the command line names.

    Raises:
        BadParameter: it names none, or more than one, or not all that is needed of it.
        DataError: a file cannot be read, or is neither CSV nor JSON lines by its name.
    """
    if (file is None) == (sql is None):
        raise typer.BadParameter("name one source: FILE, '-' for standard input, or --sql QUERY")
    if sql is not None:
        if kind is not None:
            raise typer.BadParameter("goes with a file or standard input", param_hint="--format")
        return Input(query=Query(_text(sql), _dsn(dsn, dsn_file)))
    assert file is not None
    if file == STDIN and kind is None:
        raise typer.BadParameter("say what standard input is: csv or jsonl", param_hint="--format")
    if file != STDIN and not file.exists():
        raise typer.BadParameter(f"{str(file)!r} does not exist", param_hint="FILE")
    if file != STDIN and not os.access(file, os.R_OK):
        raise typer.BadParameter(f"{str(file)!r} cannot be read", param_hint="FILE")
    if file.is_dir():
        raise typer.BadParameter(f"{str(file)!r} is a directory", param_hint="FILE")
    return Input(file, kind or kind_of(file))


def kind_of(file: Path) -> Kind:
    """CSV or JSON lines, by the file's name."""
    try:
        return Kind(file.suffix.lower().removeprefix("."))
    except ValueError:
        kinds = " or ".join(f".{kind}" for kind in Kind)
        remedy = f"Name it {kinds}, or say --format"
        raise DataError(f"{file} is neither CSV nor JSON lines by its name", remedy) from None


def _text(sql: str) -> str:
    text = _read(Path(sql[1:])) if sql.startswith("@") else sql
    return text.strip().removesuffix(";")


def _dsn(dsn: str | None, dsn_file: Path | None) -> str:
    if (dsn is None) == (dsn_file is None):
        raise typer.BadParameter(
            "--sql needs a database: one of ACKLAST_SOURCE_DSN in the environment, --dsn-file, --dsn"
        )
    return dsn if dsn is not None else _read(dsn_file or Path()).strip()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {error}", "Check its path, permissions and text") from None


@contextmanager
def opened(given: Input, order: Order) -> Iterator[Iterable[Given] | AsyncIterable[Given]]:
    """The jobs of the input's rows, for as long as the block takes.

    Raises:
        DataError: (at the latest while they are read) the input is not what it should be.
    """
    needed = order.key.fields
    if given.query is not None:
        yield _jobs(sql_rows(given.query.dsn, given.query.sql, needed), order)
        return
    assert given.file is not None
    assert given.kind is not None
    if given.size is not None:
        with given.file.open("rb") as stream:
            yield (entry_of(entry, order) for entry in read_rows(stream, given.kind, needed))
    else:
        # Whoever writes it may take his time, so a thread reads it. It is left open: it could be closed only
        # once something more comes.
        number = 0 if given.file == STDIN else os.open(given.file, os.O_RDONLY)
        stream = open(number, "rb", closefd=False)  # noqa: SIM115
        yield _jobs(Threaded(read_rows(stream, given.kind, needed)), order)


async def _jobs(rows: AsyncIterable[Entry], order: Order) -> AsyncIterator[Given]:
    async for entry in rows:
        yield entry_of(entry, order)
