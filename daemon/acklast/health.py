"""What a daemon answers to who asks whether it is ready: each lane, both servers, and why not. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from acklast.readiness import Readiness
from acklast.reporter import Standing

_NO_SESSION: Final = "no live session in the ledger: nothing starts"


@dataclass(frozen=True, slots=True)
class Server:
    """Whether a server can be used, and why not."""

    ok: bool
    why: str


@dataclass(frozen=True, slots=True)
class LaneHealth:
    """Whether a lane is consumed, or is not on purpose: paused, or without what its budget allows."""

    ready: bool
    state: str
    why: str


@dataclass(frozen=True, slots=True)
class Health:
    """How a daemon is."""

    ready: bool
    draining: bool
    why: str
    lanes: Mapping[str, LaneHealth]
    broker: Server
    ledger: Server
    configuration: str
    """What of its file is not followed since the last reload, and why. It is ready all the same."""


def health_of(known: Readiness, states: Mapping[str, Standing]) -> Health:
    """``states``: how each lane stands by its own account, as far as it has begun."""
    broker, ledger = known.servers()
    lanes = {
        name: _lane(why, states.get(name), started=known.started, leaving=known.leaving)
        for name, why in known.lanes().items()
    }
    ready = known.started and not known.leaving and not ledger and all(one.ready for one in lanes.values())
    return Health(
        ready=ready,
        draining=known.leaving,
        why="" if ready else _why(known, lanes),
        lanes=lanes,
        broker=Server(not broker, broker),
        ledger=Server(not ledger, ledger),
        configuration=known.configuration(),
    )


def _lane(why: str, state: Standing | None, *, started: bool, leaving: bool) -> LaneHealth:
    if leaving:
        return LaneHealth(False, "draining", "")
    if state is None or (state is Standing.NOT_CONSUMING and not started):
        return LaneHealth(False, "starting", why)
    if why:
        # Whoever resumes it would wait in vain: a pause is no excuse for this.
        return LaneHealth(False, Standing.NOT_CONSUMING.value, why)
    if state is Standing.LEASE_LOST:
        return LaneHealth(False, state.value, _NO_SESSION)
    # One that is not consumed for no reason is about to be: a queue is opened anew when its prefetch changes
    # or its budget has permits again, within a time limit, past which there is a reason.
    return LaneHealth(True, "opening" if state is Standing.NOT_CONSUMING else state.value, "")


def _why(known: Readiness, lanes: Mapping[str, LaneHealth]) -> str:
    if known.leaving:
        return "draining"
    if not known.started:
        return "starting"
    _, ledger = known.servers()
    lost = next((f"{name}: {one.why}" for name, one in lanes.items() if not one.ready), "")
    return known.text() if ledger or any(known.lanes().values()) else lost
