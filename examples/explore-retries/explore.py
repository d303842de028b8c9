"""When do the attempts of a job start? Retry delays, explored on the code that a daemon runs.

A notebook in plain Python: run it as a whole (``python explore.py``), or cell by cell in an editor that knows
``# %%``. Change a number and run it again: hours of back-off take no time.
"""

# %% What all cells stand on: jobs that fail, and a clock that jumps.
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log1p
from statistics import quantiles
from typing import Any

from acklast import App, RateLimited, Transient
from acklast.testing import TestJob, TestWorker

JOBS = 24
WIDTH = 60
FAILS = Transient("down")

app = App()


@app.job("call.v1", lane="calls")
async def call(payload: Any) -> None:
    """Whatever it does, the faults below happen in its place."""


def show(text: str = "") -> None:
    sys.stdout.write(f"{text}\n")


def failing(
    error: Exception, jobs: int | None = None, times: int | None = None, **lane: Any
) -> list[TestJob]:
    """So many jobs (or ``JOBS``) in a lane set like this, whose first ``times`` attempts (or all) fail."""
    jobs = jobs or JOBS
    with TestWorker(app, lanes={"calls": {"concurrency": jobs, **lane}}, seed=7) as worker:
        made = [worker.publish("calls", key=f"job-{number:02d}") for number in range(jobs)]
        worker.fault("calls", error, times=times)
        worker.run_until_idle()
        return made


def starts_s(jobs: Iterable[TestJob]) -> list[list[float]]:
    """Seconds until each start, by the number of the start: all first ones, all second ones, ..."""
    each = [[start.at_s for start in job.starts] for job in jobs]
    return [[starts[n] for starts in each if len(starts) > n] for n in range(max(map(len, each)))]


def human(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def plot(points: Iterable[float], longest_s: float) -> str:
    """A dot for each moment on an axis that is finer at its beginning."""
    dots = Counter(min(WIDTH - 1, int(WIDTH * log1p(at) / log1p(longest_s))) for at in points)
    return "".join(".:#"[min(2, dots[n] // 4)] if dots[n] else " " for n in range(WIDTH))


def table(groups: Sequence[Sequence[float]]) -> list[str]:
    longest_s = max(map(max, groups))
    lines = [f"{'start':>5}  {'earliest':>9} {'median':>9} {'latest':>9}  0 to {human(longest_s)}"]
    for number, group in enumerate(groups, 1):
        middle = quantiles(group, n=2)[0] if len(group) > 1 else group[0]
        told = (human(min(group)), human(middle), human(max(group)))
        lines.append(f"{number:>5}  {told[0]:>9} {told[1]:>9} {told[2]:>9}  |{plot(group, longest_s)}|")
    return lines


# %% 1. Back-off with full jitter: the usual policy, a short one, and one that waits for hours.
POLICIES: Mapping[str, Mapping[str, Any]] = {
    "as it comes": {},
    "short: 5 attempts, 1 s to 30 s": {"max_attempts": 5, "backoff_base_s": 1, "backoff_cap_s": 30},
    "patient: 12 attempts, 1 min to 6 h": {
        "max_attempts": 12,
        "backoff_base_s": 60,
        "backoff_cap_s": 21_600,
    },
}


def policies() -> dict[str, list[list[float]]]:
    return {name: starts_s(failing(FAILS, **lane)) for name, lane in POLICIES.items()}


# %% 2. How long until a job that always fails is a dead letter.
def until_dead(groups: Mapping[str, Sequence[Sequence[float]]]) -> list[str]:
    lines = [f"{'policy':<36} {'attempts':>8} {'earliest':>9} {'median':>9} {'latest':>9}"]
    for name, group in groups.items():
        last = sorted(group[-1])
        told = [human(last[0]), human(last[len(last) // 2]), human(last[-1])]
        lines.append(f"{name:<36} {len(group):>8} {told[0]:>9} {told[1]:>9} {told[2]:>9}")
    return lines


# %% 3. What a downstream asks for wins over the back-off, up to a cap, and spends no attempt. Waits are made
# of the broker's buckets (1 s, 5 s, 30 s, ...), hop by hop: never early, and late by less than the smallest.
ASKED_S = (0.2, 3, 47, 90, 1000, 7200)


def retry_after() -> list[tuple[float, float, float]]:
    """Seconds that were asked for, granted by the cap of an hour, and waited."""
    found = []
    for asked_s in ASKED_S:
        [job] = failing(RateLimited(asked_s), jobs=1, times=1)
        [wait] = job.waits
        found.append((asked_s, wait.seconds, job.starts[1].at_s - job.starts[0].at_s))
    return found


# %% 4. One 429 pauses its budget in every daemon, and the rate comes back slowly.
QUOTA = "20 per 1 s"
PAUSED_S = 15


def fleet_pause() -> list[int]:
    """Starts in each second: two daemons, a quota, and a 429 in the third second."""
    lanes = {"calls": {"budget": "api"}}
    with TestWorker(app, lanes=lanes, budgets={"api": {"quota": QUOTA}}, workers=2, seed=7) as worker:
        jobs = [worker.publish("calls") for _ in range(300)]
        worker.fault("calls", RateLimited(PAUSED_S), skip=45)
        worker.run_until_idle()
        worker.assert_states(done=300)
        seconds = Counter(int(start.at_s) for job in jobs for start in job.starts)
        return [seconds[second] for second in range(max(seconds) + 1)]


# %% All of it.
def main() -> None:
    groups = policies()
    for name, group in groups.items():
        show(f"\n{JOBS} jobs that always fail, policy {name}: when their attempts start")
        show("\n".join(table(group)))
    show("\nUntil a job that always fails is given up")
    show("\n".join(until_dead(groups)))
    show("\nA 429 with Retry-After: asked, granted, waited")
    for asked_s, granted_s, waited_s in retry_after():
        show(f"{human(asked_s):>10} {human(granted_s):>10} {human(waited_s):>10}")
    show(f"\nTwo daemons, {QUOTA} between them, a 429 with Retry-After: {PAUSED_S}: starts in each second")
    for second, count in enumerate(fleet_pause()):
        show(f"{second:>4} s {count:>4}  {'#' * count}".rstrip())


if __name__ == "__main__":
    main()
