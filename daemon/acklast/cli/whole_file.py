"""A file that is there as a whole or not at all: nobody takes half of one for the whole."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from acklast.errors import AcklastError, Exit

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a disk says that takes no more."""


class Unwritable(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """The place that an option names cannot be written to."""

    exit = Exit.USAGE


@contextmanager
def whole_file(out: Path) -> Iterator[TextIO]:
    """What is written goes beside its place first, and there once all of it is written. Lines end as written.

    Raises:
        Unwritable: it cannot be opened, written or put in its place.
    """
    if out.exists() and not out.is_file():
        # A device, a pipe: put in its place, the file would take it away from everybody.
        raise Unwritable(f"{out} is not a regular file", "Choose another --out")
    part = out.with_name(f"{out.name}.part")
    try:
        with _told(out):
            file = part.open("w", encoding="utf-8", newline="")
        with _told(out, only=_FULL), file:
            yield file
        with _told(out):
            part.replace(out)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _told(out: Path, only: frozenset[int] = frozenset()) -> Iterator[None]:
    """``only``: these errors, where others may come from elsewhere; any without it."""
    try:
        yield
    except OSError as error:
        if only and error.errno not in only:
            raise
        raise Unwritable(f"{out} cannot be written: {error.strerror}", "Choose another --out") from None
