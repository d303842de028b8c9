"""Which keys came before, and where: a million of them in 32 MB."""

from __future__ import annotations

from array import array
from enum import StrEnum
from hashlib import blake2b

_FULL = 0.6


class Came(StrEnum):
    """Whether a key came before."""

    FIRST = "first"
    AGAIN = "again"
    """With the same content."""
    OTHER = "other"
    """With other content."""


class Seen:
    """A table of keys by their hash, with the place of each and a part of its content's fingerprint.

    A dictionary would take four times the memory. Keys are told by 64 bits: of a million, two different ones
    are taken for one once in forty million inputs.
    """

    def __init__(self, slots: int = 1 << 12) -> None:
        """``slots``: a power of two."""
        self._count = 0
        self._make(slots)

    def _make(self, slots: int) -> None:
        self._mask = slots - 1
        self._hashes = array("Q", bytes(8 * slots))
        self._contents = array("L" if array("L").itemsize == 4 else "I", bytes(4 * slots))
        self._places = array(self._contents.typecode, bytes(4 * slots))

    def add(self, key: str, fingerprint: bytes, place: int) -> tuple[Came, int]:
        """Note a key that comes at ``place`` (from 1); whether it came before, and where first."""
        number = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little") or 1
        content = int.from_bytes(fingerprint[:4], "little")
        slot = self._slot(number)
        if self._hashes[slot]:
            came = Came.AGAIN if self._contents[slot] == content else Came.OTHER
            return came, self._places[slot]
        self._put(slot, number, content, place & 0xFFFFFFFF)
        self._count += 1
        if self._count > _FULL * (self._mask + 1):
            self._grow()
        return Came.FIRST, place

    def _slot(self, number: int) -> int:
        """Where a hash is, or where it has its place."""
        slot = number & self._mask
        while self._hashes[slot] not in (0, number):
            slot = (slot + 1) & self._mask
        return slot

    def _put(self, slot: int, number: int, content: int, place: int) -> None:
        self._hashes[slot], self._contents[slot], self._places[slot] = number, content, place

    def _grow(self) -> None:
        old = zip(self._hashes, self._contents, self._places, strict=True)
        self._make(2 * (self._mask + 1))
        for number, content, place in old:
            if number:
                self._put(self._slot(number), number, content, place)
