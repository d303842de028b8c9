"""The stream of events: each sink hears each event, and a sink that fails is its own loss."""

from __future__ import annotations

from acklast.telemetry.events import Emitter, Event, Notice, Settled


def test_every_sink_hears_every_event_in_order() -> None:
    first, second = list[Event](), list[Event]()
    emitter = Emitter(first.append, second.append)
    settled = Settled("complete", "rent", "k-1")
    emitter.emit(settled)
    emitter.notice("session.opened", session=7)
    assert first == second == [settled, Notice("session.opened", "info", {"session": 7})]


def test_a_sink_that_fails_costs_neither_the_job_nor_the_other_sinks() -> None:
    heard = list[Event]()

    def broken(event: Event) -> None:
        raise OSError("the disk is full")

    emitter = Emitter(broken, heard.append)
    emitter.emit(Settled("complete", "rent", "k-1"))
    emitter.notice("session.opened")
    assert len(heard) == 2
    assert emitter.failures == 2


def test_without_a_sink_nothing_is_missed() -> None:
    emitter = Emitter()
    emitter.notice("session.opened")
    assert emitter.failures == 0
