"""One job of a test: what became of it, and assertions that show its timeline where they fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acklast.ledger.api import JobView, LetterView, State
from acklast.outcome import Retry
from acklast.testing.play import Play
from acklast.testing.story import Event, Wait, told


class TestJob:
    """A live view: each property tells how it stands now."""

    __test__ = False

    def __init__(self, play: Play, lane: str, key: str) -> None:
        self._play = play
        self.lane = lane
        self.key = key

    @property
    def view(self) -> JobView:
        """The ledger's account of the job.

        Raises:
            AssertionError: no delivery of it has been claimed yet.
        """
        try:
            return self._play.ledger.view(self.lane, self.key)
        except KeyError:
            raise AssertionError(f"{self._name} is not in the ledger yet: run the worker first") from None

    @property
    def _name(self) -> str:
        return f"job {self.lane}/{self.key}"

    @property
    def state(self) -> State:
        """Its state; ``queued`` also before its first delivery. A ``str``: ``job.state == "done"``."""
        try:
            return self._play.ledger.view(self.lane, self.key).state
        except KeyError:
            return State.QUEUED

    @property
    def attempts(self) -> int:
        """The attempts that count so far; a 429 and a drain spend none."""
        return self.view.attempts

    @property
    def reason(self) -> str | None:
        """Why it is not done: a short code."""
        return self.view.reason

    @property
    def result(self) -> Any:
        """What its handler returned, as the ledger keeps it."""
        return self.view.result

    @property
    def letters(self) -> Sequence[LetterView]:
        """Its dead letters."""
        return self.view.letters

    @property
    def events(self) -> list[Event]:
        """What happened to it, in order."""
        return self._play.story.of(self.lane, self.key)

    @property
    def starts(self) -> list[Event]:
        """The starts of its handler; ``fields`` has ``attempt`` and ``ambiguous``."""
        return [event for event in self.events if event.name == "started"]

    @property
    def effects(self) -> list[str]:
        """The effects that were noted for it with ``worker.effect``, in order."""
        return [event.fields["what"] for event in self.events if event.name == "effect"]

    @property
    def waits(self) -> list[Wait]:
        """How long it was sent to wait, each time, and why."""
        found = [event for event in self.events if event.name == "recorded"]
        return [
            Wait(event.fields["wait_s"], event.fields["reason"], event.fields["verdict"].spends)
            for event in found
            if isinstance(event.fields["verdict"], Retry)
        ]

    def story(self) -> str:
        """What happened to it, and to the daemons meanwhile, one line each."""
        return told(self._play.story.around(self.lane, self.key), places=False)

    # --- assertions ---------------------------------------------------------------------------------

    def assert_state(self, state: str, *, attempts: int | None = None, reason: str | None = None) -> None:
        """Fail, with the timeline, unless it stands like this."""
        __tracebackhide__ = True
        found = (self.state, self.attempts, self.reason)
        wanted = (State(state), found[1] if attempts is None else attempts, reason or found[2])
        if found != wanted:
            self._fail(f"is {_said(*found)}, and not {_said(wanted[0], attempts, reason)}")

    def assert_events(self, *names: str) -> None:
        """Fail, with the timeline, unless events of these names happened to it, in this order.

        Others may lie in between.
        """
        __tracebackhide__ = True
        left = iter(event.name for event in self.events)
        for at, name in enumerate(names):
            if name not in left:
                had = " -> ".join(names[:at]) or "its beginning"
                self._fail(f"had no {name!r} after {had}")

    def assert_one_effect(self) -> None:
        """Fail, with the timeline, unless exactly one effect was noted for it."""
        __tracebackhide__ = True
        if len(self.effects) != 1:
            self._fail(f"had {len(self.effects)} effects, and not 1: {', '.join(self.effects) or 'none'}")

    def _fail(self, what: str) -> None:
        __tracebackhide__ = True
        raise AssertionError(f"{self._name} {what}\n{self.story()}")


def _said(state: State, attempts: int | None, reason: str | None) -> str:
    after = "" if attempts is None else f" after {attempts} attempt{'' if attempts == 1 else 's'}"
    return f"{state}{after}" + (f" ({reason})" if reason else "")
