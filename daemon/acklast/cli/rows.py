"""Reading rows from CSV or JSON lines: one at a time, a bad one told by its line and never fatal."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO, Final, NoReturn, TypeAlias

from acklast.errors import AcklastError, Exit

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""A longer line is no job: RabbitMQ itself refuses messages of this size, and memory stays bounded."""
_BOM: Final = b"\xef\xbb\xbf"


class DataError(AcklastError):
    """The input file cannot be read as what it claims to be."""

    exit = Exit.DATA


class Kind(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Row:
    """One job's data. ``line`` is where it starts in the file, from 1; ``payload`` is the message body."""

    line: int
    fields: Mapping[str, Any]
    payload: bytes


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no job, and why."""

    line: int
    problem: str


Entry: TypeAlias = Row | BadRow


def read_rows(stream: BinaryIO, kind: Kind, needed: frozenset[str] = frozenset()) -> Iterator[Entry]:
    """The file's rows in order. Blank lines are nothing.

    ``needed`` are the fields that every row must have: a CSV header without one is an error of the file.

    Raises:
        DataError: a CSV file has no header, or one that cannot be used.
    """
    match kind:
        case Kind.CSV:
            return _csv_rows(stream, needed)
        case Kind.JSONL:
            return _jsonl_rows(stream)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines without a byte order mark. A line that is too long comes one byte too long, its rest left out."""
    start = _BOM
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        yield raw.removeprefix(start)
        start = b""
        while len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            raw = stream.readline(MAX_LINE_BYTES + 1)


# --- CSV ----------------------------------------------------------------------------------------------


def _csv_rows(stream: BinaryIO, needed: frozenset[str]) -> Iterator[Entry]:
    # strict: without it a stray quote is taken for part of the value, and rows run into each other.
    reader = csv.reader(_text_lines(stream), strict=True)
    header = _header(reader, needed)
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            until = f" (up to line {reader.line_num})" if reader.line_num > line else ""
            yield BadRow(line, f"is not valid CSV{until}: {error}")
            continue
        if values:
            yield _csv_row(line, header, values)


def _text_lines(stream: BinaryIO) -> Iterator[str]:
    for raw in _lines(stream):
        # What is left of a line that is too long fails as a row: no field may be nearly that long.
        line = raw[:MAX_LINE_BYTES]
        # surrogateescape: bytes that are no UTF-8 pass through here and are told of their own row.
        yield line.decode("utf-8", "surrogateescape")


def _header(reader: Any, needed: frozenset[str]) -> list[str]:
    try:
        header: list[str] = next(reader)
    except StopIteration:
        raise DataError(
            "the file is empty", "A CSV file needs a header row with the columns' names"
        ) from None
    except csv.Error as error:
        raise DataError(f"the header row is not valid CSV: {error}", "Correct the first line") from None
    repeated = sorted({name for name in header if header.count(name) > 1})
    if not all(header) or repeated or not _is_text(header):
        problem = f"names {repeated[0]!r} twice" if repeated else "has a column without a readable name"
        raise DataError(f"the header row {problem}", "Give each column a name of its own, in UTF-8")
    if missing := sorted(needed - set(header)):
        raise DataError(
            f"the key needs column {missing[0]!r}, which the header row does not have",
            f"Its columns are: {', '.join(header)} (separated by commas); correct the file or --key",
        )
    return header


def _csv_row(line: int, header: list[str], values: list[str]) -> Entry:
    if len(values) != len(header):
        return BadRow(line, f"has {len(values)} values for {len(header)} columns")
    if not _is_text(values):
        return BadRow(line, "is not UTF-8")
    fields = dict(zip(header, values, strict=True))
    # One form, whatever the columns' order: the same data give the same bytes, and so the same fingerprint.
    body = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return Row(line, fields, body.encode())


def _is_text(values: list[str]) -> bool:
    return not any("\udc80" <= character <= "\udcff" for value in values for character in value)


# --- JSON lines ---------------------------------------------------------------------------------------


def _jsonl_rows(stream: BinaryIO) -> Iterator[Entry]:
    for number, raw in enumerate(_lines(stream), start=1):
        if len(raw) > MAX_LINE_BYTES:
            yield BadRow(number, f"is longer than {MAX_LINE_BYTES} bytes")
        elif payload := raw.strip():
            yield _jsonl_row(number, payload)


def _jsonl_row(line: int, payload: bytes) -> Entry:
    try:
        value = json.loads(payload.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError:
        return BadRow(line, "is not UTF-8")
    except RecursionError:
        return BadRow(line, "is nested too deeply")
    except ValueError as error:
        return BadRow(line, f"is not JSON: {error}")
    if not isinstance(value, dict):
        return BadRow(line, "is not a JSON object")
    # The bytes as they stand: writing the value again could change a number's digits.
    return Row(line, value, payload)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
