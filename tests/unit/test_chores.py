"""What goes on beside the lanes: an outage is told once, however it shows itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from acklast import relay
from acklast.chores import Chore
from acklast.errors import LedgerUnavailable
from acklast.ledger.outbox import Outbox
from acklast.telemetry.events import Emitter, Event, Notice
from acklast_topology.publish import Publisher

AWAY = LedgerUnavailable("no answer", "Wait")


class Outage:
    """An outbox that fails in these ways, one after the other, and is empty then."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        self._errors = iter(errors)
        self.over = asyncio.Event()

    async def is_due(self) -> bool:
        error = next(self._errors, None)
        if error is not None:
            raise error
        self.over.set()
        return False

    async def close(self) -> None: ...


async def test_the_relay_tells_of_an_outage_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_AGAIN_S", (0.0,))
    outage = Outage([ConnectionError("refused"), TimeoutError("late"), AWAY, ConnectionError("refused")])
    heard: list[Event] = []
    texts: list[str] = []
    made = relay.Relay(
        cast("Outbox", outage),
        lambda: cast("Publisher", None),
        Emitter(heard.append),
        "w:1",
        poll_s=60,
        tell=texts.append,
    )
    made.start()
    await asyncio.wait_for(outage.over.wait(), 10)
    await made.close()
    assert [one.name for one in heard if isinstance(one, Notice)] == ["relay.unavailable", "relay.resumed"]
    assert len(texts) == 5
    assert "late" in texts[1], "how it shows itself now"
    assert texts[-1] == relay.RELAYING


class Complaining(Chore):
    name = "thing"

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    async def run(self) -> None: ...


def test_a_chore_tells_of_each_kind_of_error_once_until_it_is_fine() -> None:
    heard: list[Event] = []
    chore = Complaining(Emitter(heard.append))
    for error in (ValueError("a"), AWAY, ValueError("a"), AWAY):
        chore.complain(error)
    assert [one.level for one in heard if isinstance(one, Notice)] == ["warning", "debug"]
    chore.fine()
    chore.complain(ValueError("a"))
    assert len(heard) == 3
