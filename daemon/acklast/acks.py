"""Acks of one channel, gathered over one turn of the event loop and sent in one write.

The contiguous prefix goes as one ``multiple`` ack, the rest singly. A ``multiple`` ack covers what was
settled before, which the broker allows, but its own tag must be open still: a tag is never acked twice.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from acklast.frames import FRAME_END, METHOD

_ACK: Final = Struct(">BHIHHQBB")
_BASIC: Final = 60
_ACK_ID: Final = 80
_NACK_ID: Final = 120
_SIZE: Final = 13
_REQUEUE: Final = 2


def ack_frame(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    """A basic.ack as it goes over the wire."""
    return _ACK.pack(METHOD, channel, _SIZE, _BASIC, _ACK_ID, tag, int(multiple), FRAME_END)


def nack_frame(channel: int, tag: int) -> bytes:
    """A basic.nack that requeues one delivery."""
    return _ACK.pack(METHOD, channel, _SIZE, _BASIC, _NACK_ID, tag, _REQUEUE, FRAME_END)


class Prefix:
    """Which tags of a channel are settled: all up to ``upto``, and those in ``beyond``."""

    __slots__ = ("_beyond", "_upto")

    def __init__(self) -> None:
        self._upto = 0
        self._beyond: set[int] = set()

    def settle(self, tags: list[int]) -> None:
        """Note tags as settled, by whatever means."""
        beyond = self._beyond
        beyond.update(tags)
        upto = self._upto + 1
        while upto in beyond:
            beyond.remove(upto)
            upto += 1
        self._upto = upto - 1

    def frames(self, channel: int, tags: list[int]) -> bytes:
        """The acks of ``tags``, none of them settled before, in as few frames as can be."""
        self.settle(tags)
        covered = max((tag for tag in tags if tag <= self._upto), default=0)
        singles = [ack_frame(channel, tag) for tag in tags if tag > self._upto]
        if covered:
            singles.insert(0, ack_frame(channel, covered, multiple=True))
        return b"".join(singles)
