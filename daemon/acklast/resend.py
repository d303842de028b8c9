"""A dead letter's message, as it came: what a job is tried again with."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from acklast.custody import kept_raw, raw_of
from acklast.frames import message_of
from acklast.ledger.api import Kept
from acklast_topology import contract
from acklast_topology.evidence import AS_SENT, CUT, MAX_TEXT_CHARS
from acklast_topology.message import Envelope, RawMessage

_BEFORE_PROPERTIES: Final = bytes(12)
"""Class, weight and body size: nobody reads them here."""


class Content(Protocol):
    """What of a letter is its message."""

    @property
    def exchange(self) -> str: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, Any]: ...
    @property
    def properties(self) -> Mapping[str, Any]: ...
    @property
    def payload(self) -> bytes | None: ...


def raw_of_letter(letter: Content) -> RawMessage | None:
    """The message of a letter, byte for byte in all that a consumer can see; None where its content is gone.

    Where JSON could not keep a header or a property as it was, the letter has them once more as AMQP does.
    """
    if letter.payload is None:
        return None
    sent = letter.properties.get(AS_SENT)
    if isinstance(sent, str):
        header = _BEFORE_PROPERTIES + b64decode(sent)
        return message_of(header, letter.payload, letter.exchange, letter.routing_key, False)
    return RawMessage(
        body=letter.payload,
        exchange=letter.exchange,
        routing_key=letter.routing_key,
        headers=letter.headers,
        **_properties(letter.properties),
    )


def _properties(shown: Mapping[str, Any]) -> dict[str, Any]:
    """A time is the only property that JSON has in another form."""
    told = dict(shown)
    if isinstance(at := told.get("timestamp"), str):
        told["timestamp"] = datetime.fromisoformat(at)
    return told


def again(letter: Content, key: str) -> tuple[Kept, Envelope] | None:
    """The message that tries a letter's job again, and how it will be read; None where not all of it is left,
    or where it would be refused today as well."""
    try:
        if (raw := raw_of_letter(letter)) is None or _is_cut(letter):
            return None
        if not isinstance(contract.parse(raw), Envelope):
            return None
        kept = kept_raw(raw, key)
    except Exception:  # a row that somebody has written by hand: it must not hold up the others
        return None
    if kept is None:
        return None
    envelope = contract.parse(raw_of(kept))
    return (kept, envelope) if isinstance(envelope, Envelope) else None


def _is_cut(letter: Content) -> bool:
    """Whether it was too large to be kept whole."""
    return AS_SENT not in letter.properties and (_ends_cut(letter.headers) or _ends_cut(letter.properties))


def _ends_cut(shown: object) -> bool:
    match shown:
        case Mapping():
            return shown.get(CUT) == "cut" or any(map(_ends_cut, shown.values()))
        case list():
            return shown[-1:] == [CUT] or any(map(_ends_cut, shown))
        case str():
            return len(shown) > MAX_TEXT_CHARS and shown.endswith(CUT)
        case _:
            return False
