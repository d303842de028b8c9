"""The evidence that goes into the ledger's dead letters, as values."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from acklast.fingerprint import NOTHING, Raised, fingerprint
from acklast.ledger.api import Letter
from acklast_topology.contract import Envelope, Malformed, Reason, digest, evidence


def of_job(lane: str, envelope: Envelope, reason: str, detail: str, raised: Raised = NOTHING) -> Letter:
    """The letter of a claimed job that is buried or held. ``raised``: what its last attempt raised."""
    seen = evidence(envelope.raw)
    return Letter(
        lane=lane,
        reason=reason,
        detail=detail,
        payload=envelope.raw.body,
        key=envelope.key,
        run=envelope.run,
        type=envelope.type,
        content_type=envelope.content_type,
        exchange=envelope.raw.exchange,
        routing_key=envelope.raw.routing_key,
        headers=seen.headers,
        properties=seen.properties,
        failure=fingerprint(reason, detail, envelope.key, raised),
    )


def of_malformed(lane: str, malformed: Malformed) -> Letter:
    """The letter of a message that breaks the contract: it has no job of its own."""
    raw = malformed.raw
    seen = evidence(raw)
    return Letter(
        lane=lane,
        reason=malformed.reason,
        detail=malformed.detail,
        payload=raw.body,
        key=malformed.key,
        content_type=raw.content_type if isinstance(raw.content_type, str) else None,
        exchange=raw.exchange,
        routing_key=raw.routing_key,
        headers=seen.headers,
        properties=seen.properties,
        digest=digest(raw),
        failure=fingerprint(malformed.reason, malformed.detail, malformed.key),
    )


def of_stranded(lane: str, envelope: Envelope | Malformed, reason: Reason, detail: str) -> Letter:
    """The letter of a message that the broker set aside and that gets no job."""
    if isinstance(envelope, Malformed):
        detail = f"{detail}; besides, {envelope.reason}: {envelope.detail}"
        return of_malformed(lane, replace(envelope, reason=reason, detail=detail))
    letter = of_malformed(lane, Malformed(reason, detail, envelope.key, envelope.raw))
    return replace(letter, run=envelope.run, type=envelope.type)


def of_conflict(lane: str, envelope: Envelope) -> Letter:
    """The letter of a message whose key belongs to a job with another content."""
    detail = "the key belongs to a job with another type, content type or body; that job is untouched"
    malformed = Malformed(Reason.KEY_CONFLICT, detail, envelope.key, envelope.raw)
    # By key and content: a copy that came by way of a wait queue is the same message with other properties.
    repeat = sha256(envelope.fingerprint + envelope.key.encode()).digest()
    return replace(of_malformed(lane, malformed), run=envelope.run, type=envelope.type, digest=repeat)
