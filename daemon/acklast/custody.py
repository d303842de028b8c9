"""A job's message as the ledger keeps it: what a carrier of it would be, and the way back."""

from __future__ import annotations

import struct
from typing import Final

from acklast.frames import message_of
from acklast.ledger.api import Kept
from acklast_topology.carrier import carrier_properties
from acklast_topology.contract import Envelope
from acklast_topology.message import RawMessage

_BEFORE_PROPERTIES: Final = bytes(12)
"""Class, weight and body size: nobody reads them here."""
_UNENCODABLE: Final = (TypeError, ValueError, OverflowError, RecursionError, struct.error)


def kept_of(envelope: Envelope) -> Kept | None:
    """The message of a job; None where it holds what no client can send again, so that it could not wait in
    the broker either."""
    return kept_raw(envelope.raw, envelope.key)


def kept_raw(raw: RawMessage, key: str) -> Kept | None:
    try:
        return Kept(_BEFORE_PROPERTIES + carrier_properties(raw, key).marshal(), raw.body)
    except _UNENCODABLE:
        return None


def raw_of(kept: Kept) -> RawMessage:
    """The message again."""
    return message_of(kept.header, kept.body, "", "", False)
