"""A file that is there as a whole or not at all: nobody takes half of one for the whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from acklast.errors import AcklastError, Exit


class Unwritable(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """The place that an option names cannot be written to."""

    exit = Exit.USAGE


@contextmanager
def whole_file(out: Path) -> Iterator[TextIO]:
    """What is written goes beside its place first, and there once all of it is written. Lines end as written.

    Raises:
        Unwritable: it cannot be opened or put in its place.
    """
    if out.exists() and not out.is_file():
        # A device, a pipe: put in its place, the file would take it away from everybody.
        raise Unwritable(f"{out} is not a regular file", "Choose another --out")
    part = out.with_name(f"{out.name}.part")
    try:
        with _told(out):
            file = part.open("w", encoding="utf-8", newline="")
        with file:
            yield file
        with _told(out):
            part.replace(out)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _told(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unwritable(f"{out} cannot be written: {error.strerror}", "Choose another --out") from None
