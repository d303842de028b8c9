"""Reading rows from CSV or JSON lines: one at a time, a bad one told by its line and never fatal."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, BinaryIO, Final, NoReturn, TypeAlias

from acklast.errors import AcklastError, Exit

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""A longer line is no job: RabbitMQ itself refuses messages of this size, and memory stays bounded."""
_MAX_RAW_BYTES: Final = 1024 * 1024
"""A bad row that is longer is not kept as it came: thousands of them would not fit in memory."""
_JSON: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_BOM: Final = b"\xef\xbb\xbf"


class DataError(AcklastError):
    """The input file cannot be read as what it claims to be."""

    exit = Exit.DATA


class Kind(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Row:
    """One job's data. ``line`` is where it starts in the file, from 1; ``payload`` is the message body.

    ``raw`` is the row as it came; ``read`` how many bytes of the file had been read with it.
    """

    line: int
    fields: Mapping[str, Any]
    payload: bytes
    raw: bytes = field(default=b"", compare=False)
    read: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no job, and why. ``raw`` is empty where it is too long to be kept."""

    line: int
    problem: str
    raw: bytes = field(default=b"", compare=False)
    read: int = field(default=0, compare=False)


Entry: TypeAlias = Row | BadRow


def read_rows(stream: BinaryIO, kind: Kind, needed: frozenset[str] = frozenset()) -> Iterator[Entry]:
    """The file's rows in order. Blank lines are nothing.

    ``needed`` are the fields that every row must have: a CSV header without one is an error of the file.

    Raises:
        DataError: a CSV file has no header, or one that cannot be used; or (later) it cannot be read on, or a
            quoted value has no end.
    """
    match kind:
        case Kind.CSV:
            return _csv_rows(stream, needed)
        case Kind.JSONL:
            return _jsonl_rows(stream)


class _Lines:
    """Lines without a byte order mark, and what was read since the last row.

    A line that is too long comes one byte too long, its rest left out.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._since: list[bytes] = []
        self.read = 0

    def __iter__(self) -> Iterator[bytes]:
        start = _BOM
        while raw := self._next():
            line = raw.removeprefix(start)
            start = b""
            self._since.append(line)
            yield line
            while len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
                raw = self._next()

    def _next(self) -> bytes:
        try:
            raw = self._stream.readline(MAX_LINE_BYTES + 1)
        except OSError as error:
            told = error.strerror or str(error)
            raise DataError(
                f"the input cannot be read: {told}", "Check the file and its disk, and repeat the command"
            ) from None
        self.read += len(raw)
        return raw

    @property
    def since_bytes(self) -> int:
        """How much was read since the last call of ``row``."""
        return sum(map(len, self._since))

    def row(self) -> bytes:
        """All lines since the last call, as they came."""
        row = self._since[0] if len(self._since) == 1 else b"".join(self._since)
        self._since.clear()
        return row.rstrip(b"\r\n")

    def bad(self, line: int, problem: str) -> BadRow:
        """What was read since the last call is no row."""
        raw = self.row()
        return BadRow(line, problem, raw if len(raw) <= _MAX_RAW_BYTES else b"", self.read)


# --- CSV ----------------------------------------------------------------------------------------------


def _csv_rows(stream: BinaryIO, needed: frozenset[str]) -> Iterator[Entry]:
    lines = _Lines(stream)
    # The library's own limit is low, and behind it the rest of a value would be read as rows.
    csv.field_size_limit(MAX_LINE_BYTES)
    # strict: without it a stray quote is taken for part of the value, and rows run into each other.
    reader = csv.reader(_text_of(lines), strict=True)
    header = _header(reader, needed)
    lines.row()
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if reader.line_num > line and lines.since_bytes > MAX_LINE_BYTES:
                raise DataError(
                    f"the value that is quoted in the row at line {line} does not end within 16 MiB",
                    "Close the quote, and repeat the command: what is published is left alone",
                ) from None
            until = f" (up to line {reader.line_num})" if reader.line_num > line else ""
            yield lines.bad(line, f"is not valid CSV{until}: {error}")
            continue
        if values:
            yield _csv_row(line, header, values, lines)
        else:
            lines.row()


def _text_of(lines: _Lines) -> Iterator[str]:
    for raw in lines:
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
    if not header:
        raise DataError("the first line is blank", "A CSV file begins with a row of its columns' names")
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


def _csv_row(line: int, header: list[str], values: list[str], lines: _Lines) -> Entry:
    if len(values) != len(header):
        return lines.bad(line, f"has {len(values)} values for {len(header)} columns")
    if not _is_text(values):
        return lines.bad(line, "is not UTF-8")
    fields = dict(zip(header, values, strict=True))
    # One form, whatever the columns' order: the same data give the same bytes, and so the same fingerprint.
    return Row(line, fields, json_body(fields), lines.row(), lines.read)


def json_body(fields: Mapping[str, Any]) -> bytes:
    """
    Raises:
        ValueError: a value is no JSON.
    """
    return _JSON.encode(fields).encode()


def _is_text(values: list[str]) -> bool:
    return not any("\udc80" <= character <= "\udcff" for value in values for character in value)


# --- JSON lines ---------------------------------------------------------------------------------------


def _jsonl_rows(stream: BinaryIO) -> Iterator[Entry]:
    lines = _Lines(stream)
    for number, raw in enumerate(lines, start=1):
        if len(raw) > MAX_LINE_BYTES:
            yield lines.bad(number, f"is longer than {MAX_LINE_BYTES} bytes")
        elif payload := raw.strip():
            yield _jsonl_row(number, payload, lines)
        else:
            lines.row()


def _jsonl_row(line: int, payload: bytes, lines: _Lines) -> Entry:
    try:
        value = json.loads(payload.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError:
        return lines.bad(line, "is not UTF-8")
    except RecursionError:
        return lines.bad(line, "is nested too deeply")
    except ValueError as error:
        return lines.bad(line, f"is not JSON: {error}")
    if not isinstance(value, dict):
        return lines.bad(line, "is not a JSON object")
    lines.row()
    # The bytes as they stand: writing the value again could change a number's digits.
    return Row(line, value, payload, payload, lines.read)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
