"""A lane and a job as ``acklast why`` sees them, and whether what it advises can be typed."""

from __future__ import annotations

import shlex
from typing import Any, Final

import typer.main

from acklast.cli.lane_view import LaneView
from acklast.cli.root import app
from acklast.config.quota import Quota
from acklast.lane_queues import Queues
from acklast.ledger.api import JobView, State
from acklast.ledger.standing import DaemonView
from acklast.ledger.workers import State as Worker
from acklast.ledger.workers import WorkerView
from harness.controls import AT

LANE: Final = "work"
DAEMON: Final = DaemonView(
    1, "one@host:7", True, 0.0, 0, 10, 0, 0, 0, 60.0, 50, 0, 100 / 60, "open", None, AT
)
QUIET_LANE: Final = LaneView(
    lane=LANE,
    budget="api",
    configured=Quota(100, 60.0),
    in_force=Quota(100, 60.0),
    concurrency=10,
    daemons=(DAEMON,),
    silent=(),
    queues=Queues(0, 0),
    paused=None,
    quiet=None,
    limits=(),
    now=AT,
    changed=0,
)
WORKER: Final = WorkerView(
    1,
    "one",
    "one@host:7",
    "1.0",
    "9",
    Worker.LIVE,
    AT,
    AT,
    15.0,
    10.0,
    None,
    (LANE,),
    0,
    0,
    None,
    None,
    None,
    None,
)
_NONE: Final = dict.fromkeys(
    (
        *("type", "run", "reason", "result", "worker", "version", "published_at", "claimed_at"),
        *("available_at", "effect_at", "recorded_at", "settled_at", "deadline"),
    )
)
VIEW: Final = JobView(
    lane=LANE,
    key="k",
    state=State.QUEUED,
    fence=1,
    attempts=0,
    rate_limited=0,
    ambiguous=False,
    enqueued_at=AT,
    **_NONE,  # type: ignore[arg-type]
)


def fits(helps: str | None) -> bool:
    """Whether each command of an advice is one, with options that it has."""
    parts = [] if helps is None else [part for part in helps.split("; then ") if part.startswith("acklast ")]
    return all(_parses(shlex.split(part.partition(" or ")[0])[1:]) for part in parts)


def _parses(arguments: list[str]) -> bool:
    command: Any = typer.main.get_command(app)
    while getattr(command, "commands", None) and arguments and arguments[0] in command.commands:
        command, arguments = command.commands[arguments[0]], arguments[1:]
    known = {name for option in command.params for name in option.opts}
    group = bool(getattr(command, "commands", None)) and not getattr(command, "invoke_without_command", False)
    return not group and {word for word in arguments if word.startswith("--")} <= known
