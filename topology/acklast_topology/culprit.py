"""Which message a broker closed a channel over.

It closes the channel, says why in words, and throws away all that came behind: of what was under way on it
nothing is known. Who sends all of that again, the culprit included, is closed the next channel, for ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_TOO_LARGE: Final = re.compile(r"message size \d+ (?:is )?larger than (?:configured )?max size (\d+)")
_NO_RIGHT: Final = re.compile(r"access to topic '([^']*)' in exchange")


@dataclass(slots=True)
class Largest:
    """The bytes of the largest body that the broker takes; None until it has said so."""

    size: int | None = None

    def learn(self, error: Exception) -> None:
        """Take the figure out of the broker's words, where they have it."""
        if found := _TOO_LARGE.search(str(error)):
            self.size = int(found[1])

    def require(self, size: int) -> None:
        """
        Raises:
            ValueError: a body of this size would close the channel.
        """
        if self.size is not None and size > self.size:
            raise ValueError(
                f"its body has {size} bytes, and the broker takes {self.size}: "
                "send a reference, or raise max_message_size on the broker"
            )


def is_culprit(error: Exception, routing_key: str, size: int) -> bool:
    """Whether the broker's words mean a message of this routing key and of a body of this size, in bytes."""
    words = str(error)
    if found := _TOO_LARGE.search(words):
        return size > int(found[1])
    found = _NO_RIGHT.search(words)
    return found is not None and found[1] == routing_key
