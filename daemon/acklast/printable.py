"""Text that does nothing to a terminal, whoever wrote it. Pure."""

from __future__ import annotations

from typing import Final

SEVERAL: Final = "\n\t"
"""What a text of several lines keeps."""


def safe(text: str, keep: str = "") -> str:
    """Text that does nothing to a terminal: what cannot be seen is escaped, as what turns text round is."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode()
        for char in text
    )
