"""When the plans of the flush are to be made anew. No I/O.

A plan is made once for each statement of a connection, and kept: making one takes longer than most flushes.
But where the table is small, reading all of it is as cheap as looking a row up by its key. A plan of that
kind would live on while the table grows, at a cost that grows with it for each row of each flush.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 128
"""Rows after which the plans of an empty table are looked at again."""
MOST: Final = 100_000
"""Rows after which they are whatever the table's size: a plan that is right for half of it stays right."""


class Growth:
    """Counts the rows that a connection may have added."""

    def __init__(self) -> None:
        self._rows = 0
        self._due = FIRST

    def outgrown(self, rows: int) -> bool:
        """Whether the table may have doubled since the plans were made; ``rows`` come now."""
        self._rows += rows
        if self._rows < self._due:
            return False
        self._due = self._rows + min(max(self._rows, FIRST), MOST)
        return True
