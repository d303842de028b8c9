"""What daemons make of a Retry-After: who still called after the answer that said so, and when it went on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from bench.caller import METER
from bench.paced import Load, Paced, draining
from bench.progress import Progress
from bench.queues import BenchError
from bench.report import Report
from bench.servers import Servers

_QUIET_S: Final = 3.0
_BETWEEN_S: Final = 3.0
_POLL_S: Final = 0.1
_LATE_S: Final = 10.0


def quiet(who: Paced, load: Load, times: int, servers: Servers, say: Progress) -> Report:
    """The table: ``times`` pauses, one after the other, while there is work all the time."""
    say.begin("quiet", times)
    found = []
    with draining(who, load, servers) as drain:
        for _ in range(times):
            time.sleep(_BETWEEN_S)
            drain.metered.be_quiet(METER, _QUIET_S)
            found.append(_until_resumed(drain.metered.account))
            say.step(f"calls after it {found[-1]['after']}, resumed after {found[-1]['resumed_s']:.3f} s")
        worst = drain.metered.account(METER)["worst"]
    headings = (
        "pause",
        "Retry-After",
        "calls after the answer",
        "the last of them",
        "went on after its time by",
    )
    return Report(
        "quiet",
        f"A Retry-After, and {who.processes} daemons: what is called after its answer, and when they go on",
        headings,
        [_row(number, one) for number, one in enumerate(found, 1)],
        {f"pause {number}": one for number, one in enumerate(found, 1)},
        (
            "counted at the provider from the answer of its first refusal; calls then on their way are in it",
            f"the worst window of the whole time: {worst} of {load.count}",
        ),
    )


def _until_resumed(account: Any) -> dict[str, Any]:
    until = time.monotonic() + _QUIET_S + _LATE_S
    while time.monotonic() < until:
        latest: dict[str, Any] = account(METER)["quiets"][-1]
        if latest["resumed_s"] is not None:
            return latest
        time.sleep(_POLL_S)
    raise BenchError(f"nothing was called within {_LATE_S:g} s after a pause")


def _row(number: int, one: dict[str, Any]) -> Sequence[str]:
    return (
        str(number),
        f"{one['due_at'] - one['told_at']:g} s",
        str(one["after"]),
        f"{1000 * one['last_after_s']:.0f} ms",
        f"{1000 * one['resumed_s']:.0f} ms",
    )
