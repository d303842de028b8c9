"""What the daemon says of itself in one line: which lanes it does not consume, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence

CONSUMER = "consumer"


class Readiness:
    """Gathers what keeps lanes from being consumed, and tells ``say`` each time that it changes."""

    def __init__(self, lanes: Sequence[str], say: Callable[[str], None]) -> None:
        self._lanes = tuple(lanes)
        self._say = say
        self._down: dict[tuple[str, str], str] = {}
        self._links: dict[str, str] = {}
        self._unread: dict[str, str] = {}
        self._ledger = ""
        self._paused: list[str] = []
        self._configuration = ""
        self._said = self.text()
        self.started = False
        """Every lane was consumed once, or stood by on purpose."""
        self.leaving = False
        """A drain has begun, which tells how it is itself."""

    def lane(self, name: str, queue: str, why: str) -> None:
        """A queue of a lane is not consumed, and why; or it is, with nothing to say."""
        if why:
            self._down[name, queue] = why
        else:
            self._down.pop((name, queue), None)
        self._tell()

    def link(self, role: str, why: str) -> None:
        """A connection cannot be used, and why; or it can."""
        self._links[role] = why
        self._tell()

    def ledger(self, why: str) -> None:
        """The ledger is away, and why; or it is not."""
        self._ledger = why
        self._tell()

    def paused(self, lanes: list[str]) -> None:
        """These lanes are paused by an operator."""
        self._paused = lanes
        self._tell()

    def configured(self, why: str) -> None:
        """Not all of the configuration's file is followed, and why; or it is, with nothing to say."""
        self._configuration = why
        self._tell()

    def letterbox(self, queue: str, why: str) -> None:
        """A queue of what the broker set aside is not consumed, and why; or it is, with nothing to say."""
        if why:
            self._unread[queue] = why
        else:
            self._unread.pop(queue, None)
        self._tell()

    def away(self) -> str:
        """Which server cannot be used, and why; nothing where both can."""
        return self._ledger or next((why for why in self._links.values() if why), "")

    def lanes(self) -> dict[str, str]:
        """Every lane, and why it is not consumed, or nothing."""
        down = {lane: why for (lane, _), why in self._down.items()}
        broker = self._links.get(CONSUMER, "")
        return {lane: down.get(lane, broker) for lane in self._lanes}

    def servers(self) -> tuple[str, str]:
        """Why the broker and why the ledger cannot be used, or nothing."""
        return next((why for why in self._links.values() if why), ""), self._ledger

    def configuration(self) -> str:
        """Why not all of the configuration's file is followed, or nothing."""
        return self._configuration

    def text(self) -> str:
        """The line."""
        if self._ledger:
            return f"{self._ledger}; nothing starts"
        down = {lane: why for (lane, _), why in self._down.items()}
        out = len({*down, *self._paused})
        of = f"{len(self._lanes) - out} of " if out else ""
        return "; ".join((f"consuming {of}{len(self._lanes)} lanes", *self._reasons(down)))

    def _reasons(self, down: dict[str, str]) -> list[str]:
        broker = self._links.get(CONSUMER, "")
        said = [broker] if broker else [f"{lane}: {why}" for lane, why in down.items()]
        said += [
            f"retries wait: {why}"
            for role, why in self._links.items()
            if role != CONSUMER and why and why != broker
        ]
        if not broker:
            said += [f"letterbox, {queue}: {why}" for queue, why in self._unread.items()]
        if self._paused:
            said.append(f"paused: {', '.join(self._paused)}")
        return said + ([self._configuration] if self._configuration else [])

    def _tell(self) -> None:
        if not self.leaving and (text := self.text()) != self._said:
            self._said = text
            self._say(text)
