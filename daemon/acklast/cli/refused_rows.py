"""The file of rows that were not accepted: each as it came, so that it can be corrected and fed again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from acklast.cli.order import Source
from acklast.cli.rows import DataError
from acklast.cli.tally import Item
from acklast_topology.items import Enqueued

Put = Callable[[Enqueued], None]


@contextmanager
def refused_rows(file: Path | None) -> Iterator[Put]:
    """What writes an item into ``file``, one JSON line each; nothing where there is none.

    Raises:
        DataError: the file cannot be written.
    """
    if file is None:
        yield lambda _: None
        return
    try:
        stream = file.open("w", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{file} cannot be written: {error.strerror}", "Name another with --report") from None
    with stream:

        def put(told: Enqueued) -> None:
            stream.write(f"{line_of(told)}\n")
            stream.flush()  # whatever ends the command, it is told

        yield put


def line_of(told: Enqueued) -> str:
    """One row's line. ``row`` is null where it was too long to be kept."""
    item, source = Item.of(told), told.source
    assert isinstance(source, Source)
    row = source.raw.decode("utf-8", "surrogateescape") if source.raw else None
    return json.dumps(
        {"line": item.line, "key": item.key, "fate": item.fate, "detail": item.detail, "row": row}
    )
