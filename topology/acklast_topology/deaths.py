"""Why the broker itself set a message aside: read from what it wrote on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from acklast_topology.evidence import escaped
from acklast_topology.message import Reason

_REASONS: Final = {
    "delivery_limit": Reason.BROKER_DELIVERY_LIMIT,
    "expired": Reason.BROKER_EXPIRED,
    "maxlen": Reason.BROKER_MAXLEN,
    "rejected": Reason.BROKER_REJECTED,
}
_TEXT_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Death:
    """The reason for a dead letter, and a sentence for people."""

    reason: Reason
    detail: str


def death_of(headers: Mapping[Any, Any]) -> Death:
    """The last time that a broker dead-lettered a message, by its ``x-death``. Pure; never raises.

    Anybody can write that header: it is evidence, and nothing is counted by it.
    """
    deaths = headers.get("x-death")
    last = deaths[0] if isinstance(deaths, list | tuple) and deaths else None
    if not isinstance(last, Mapping):
        return Death(Reason.BROKER_DEAD_LETTER, "the broker dead-lettered it and does not say why")
    why, queue = _text(last.get("reason")), _text(last.get("queue"))
    reason = _REASONS.get(why, Reason.BROKER_DEAD_LETTER)
    return Death(reason, f"the broker dead-lettered it from queue {queue or '?'}: {why or 'no reason given'}")


def _text(value: object) -> str:
    return escaped(value[:_TEXT_CHARS]) if isinstance(value, str | bytes | bytearray) else ""
