"""Has a running daemon follow its changed configuration on SIGHUP, as far as that needs no restart.

All or nothing: the file is read, checked and compared before anything is touched, and what follows is
assignments within one turn of the event loop. So no drain and no second signal can come in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from acklast.chores import Chore
from acklast.config.app import check_reconciles
from acklast.config.changes import Changes, diff, merged
from acklast.config.models import Config
from acklast.config.problems import InvalidConfig
from acklast.errors import AcklastError
from acklast.handlers.app import App
from acklast.lane import Lane
from acklast.notify import Notify
from acklast.pruner import Pruner, keeps_of
from acklast.readiness import Readiness
from acklast.sampler import Sampler
from acklast.steering import Steering
from acklast.telemetry import log
from acklast.telemetry.events import Emitter
from acklast.unquoted import unquoted

_NAMED: Final = 3
"""So many keys are named in the one line that systemd shows; the log has them all."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the configuration comes from, and the log that has its level."""

    read: Callable[[], Config]
    """The file as it is now, as the command that started the daemon reads it.

    Raises:
        ConfigError: it cannot be used.
    """
    set_level: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Followers:
    """What of the daemon goes by the configuration while it runs."""

    app: App
    lanes: Sequence[Lane]
    chores: Sequence[Chore]
    steering: Steering

    def follow(self, config: Config) -> None:
        """Go by ``config``, which has the same lanes and budgets."""
        for lane in self.lanes:
            settings = config.lanes[lane.name]
            lane.policy = settings.policy()
            lane.pacing.weigh(settings.weight)
        for chore in self.chores:
            if isinstance(chore, Pruner):
                chore.keeps = keeps_of(config.lanes)
            elif isinstance(chore, Sampler):
                chore.follow(config)
        self.app.resize({name: lane.concurrency for name, lane in config.lanes.items()})
        self.steering.follow(config)


class Reloading(Chore):
    """Waits for SIGHUP; one after the other. ``config`` is what the daemon goes by."""

    name = "reload"

    def __init__(
        self,
        config: Config,
        source: Source,
        asked: asyncio.Event,
        followers: Followers,
        readiness: Readiness,
        notify: Notify,
        emitter: Emitter,
    ) -> None:
        """``asked`` is set by each signal, also before ``start``."""
        self.config = config
        self._source = source
        self._asked = asked
        self._followers = followers
        self._readiness = readiness
        self._notify = notify
        self._emitter = emitter

    async def run(self) -> None:
        while True:
            await self._asked.wait()
            # Before the file is read: a signal that comes later may be about a later file.
            self._asked.clear()
            self.once()

    def once(self) -> None:
        """Read the file and follow it; where that cannot be, go on as before and say why. Never raises."""
        # During the start systemd waits for READY, which this would say too early.
        tells = self._readiness.started and not self._readiness.leaving
        if tells:
            self._notify.reloading()
        try:
            changes = self._follow(self._source.read())
        except Exception as error:
            # Not only a bad file: a defect here must not end what works.
            said = unquoted(error)
            remedy = error.remedy if isinstance(error, AcklastError) else ""
            self._emitter.notice("config.reload_failed", "error", error=said, remedy=remedy)
            self._readiness.configured(f"configuration not reloaded: {_first(error, said)}")
        else:
            self._readiness.configured(_waiting(changes))
        if tells:
            self._notify.ready(self._readiness.text())

    def _follow(self, new: Config) -> Changes:
        old, changes, wanted = self.config, diff(self.config, new), merged(self.config, new)
        check_reconciles(wanted, self._followers.app)
        try:
            self._followers.follow(wanted)
        except BaseException:
            self._followers.follow(old)
            raise
        self.config = wanted
        # Said at the louder of both levels: else nobody would hear of one that is raised, or of one lowered.
        self._source.set_level(log.louder(old.log.level, wanted.log.level))
        self._emitter.notice(
            "config.reloaded",
            "warning" if changes.restart else "info",
            changed={change.key: change.shown() for change in changes.live},
            next_connection=list(changes.connection),
            restart=list(changes.restart),
        )
        self._source.set_level(wanted.log.level)
        return changes


def _first(error: Exception, said: str) -> str:
    """The first thing wrong, and how many more there are, in one line."""
    if not isinstance(error, InvalidConfig):
        return " ".join(said.split())
    more = len(error.problems) - 1
    return error.problems[0].line() + (f" (and {more} more)" if more else "")


def _waiting(changes: Changes) -> str:
    if not changes.restart:
        return ""
    named, more = ", ".join(changes.restart[:_NAMED]), len(changes.restart) - _NAMED
    return f"a restart is needed for {named}" + (f" and {more} more" if more > 0 else "")
