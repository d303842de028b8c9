"""The file of rows that were not accepted: each as it came, so that it can be corrected and fed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from acklast.cli.order import Source
from acklast.cli.rows import DataError
from acklast.cli.tally import Item
from acklast_topology.items import Enqueued

Put = Callable[[Enqueued], None]


@contextmanager
def refused_rows(file: Path | None, source: Path | None) -> Iterator[Put]:
    """What writes an item into ``file``, one JSON line each; nothing where there is none.

    Raises:
        DataError: the file cannot be written, or is ``source``, which is read and would be emptied.
    """
    if file is None:
        yield lambda _: None
        return
    if source is not None and file.exists() and source.exists() and file.samefile(source):
        raise DataError(f"{file} is the input itself", "Name another file with --report")
    with _told(file):
        stream = file.open("w", encoding="utf-8")

    def put(told: Enqueued) -> None:
        with _told(file):
            stream.write(f"{line_of(told)}\n")
            stream.flush()  # whatever ends the command, it is told

    try:
        yield put
    finally:
        with suppress(OSError):  # what could not be written was told
            stream.close()


@contextmanager
def _told(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "Make room, or name another with --report; repeating the command is safe"
        raise DataError(f"{file} cannot be written: {error.strerror}", remedy) from None


def line_of(told: Enqueued) -> str:
    """One row's line. ``row`` is null where it was too long to be kept."""
    item, source = Item.of(told), told.source
    assert isinstance(source, Source)
    row = source.raw.decode("utf-8", "surrogateescape") if source.raw else None
    return json.dumps(
        {"line": item.line, "key": item.key, "fate": item.fate, "detail": item.detail, "row": row}
    )
