"""Very many paced calls through kills, restarts, jitter and clocks that are set, under a meter of its own.

Several daemons work on lanes with a budget each. The meter is a process of its own with its own clock, whose
answers take up to 200 ms. Meanwhile daemons are killed, stopped and started again, and their clocks and the
ledger's are set by 2 s forward and back. Not one window may hold more calls than its quota.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rich.console import Console

from bench import ledgers, machine
from bench.battered import Battered
from bench.caller import PORT
from bench.clocks import WallClock
from bench.command import carry_out
from bench.contenders.proof_lanes import BUDGETS
from bench.feed import Feed
from bench.metered import Metered, provider
from bench.paced import BOUND_S
from bench.progress import Progress
from bench.queues import BenchError
from bench.report import Report, show
from bench.servers import Servers
from dev.stack import stack

_ROOT: Final = Path(__file__).parents[1]
_SAY_EVERY_S: Final = 20.0
_POLL_S: Final = 1.0
_STUCK_S: Final = 60.0
_ANSWERS_S: Final = (0.0, 0.2)
_HEAD: Final = """
app = "bench.contenders.proof_lanes:app"
state_dir = "{directory}/state"
[ledger]
lease_s = 5
"""
_LANE: Final = """
[budgets.{name}]
quota = "{count} per {period_s:g} s"
{burst}
[lanes.{name}]
budget = "{name}"
concurrency = {concurrency}
max_rate_limited = 1000000
on_unknown = "retry"
"""


def config(directory: Path, excess: float) -> str:
    """The daemons' configuration. ``excess``: by what part its quotas are above the provider's."""
    lanes = [
        _LANE.format(
            name=name,
            count=round(budget.count * (1 + excess)),
            period_s=budget.period_s,
            burst=f"burst = {budget.burst}" if budget.burst else "",
            concurrency=budget.concurrency,
        )
        for name, budget in BUDGETS.items()
    ]
    return _HEAD.format(directory=directory) + "".join(lanes)


@contextmanager
def _place() -> Iterator[Path]:
    with TemporaryDirectory(prefix="bench-proof-") as directory:
        # The ledger's own user reads the file that sets its clock.
        Path(directory).chmod(0o711)
        yield Path(directory)


def prove(options: argparse.Namespace, out: Console, say: Progress) -> None:
    """One run, and what all runs in the same file come to.

    Raises:
        BenchError: a window held more than its quota, or nothing moved.
        Missing, StackError: there are no servers.
    """
    with _place() as directory, stack() as both:
        clocks = {}
        if both.ledger.cluster is not None:
            clocks["ledger"] = WallClock(directory / "clock-ledger")
            both.ledger.cluster.stop()
            both.ledger.cluster.env.update(clocks["ledger"].environment())
            both.ledger.cluster.start()
        servers = Servers.of(both)
        asyncio.run(ledgers.make(servers.dsn))
        told = asyncio.run(machine.describe(servers))
        (directory / "acklast.toml").write_text(config(directory, options.excess))
        quotas = {name: (budget.count, budget.period_s) for name, budget in BUDGETS.items()}
        with servers.vhost() as url, provider(_ANSWERS_S, quotas) as metered:
            env = _environment(url, servers.dsn, metered.port)
            chance = random.Random(options.seed)  # noqa: S311 - which trouble comes next
            battered = Battered(directory / "acklast.toml", options.daemons, env, chance, clocks)
            found = asyncio.run(_run(options, url, metered, battered, say))
    runs = _kept(options.json, {**found, "machine": told})
    show(out, _report(runs))
    for name, value in told.items():
        out.print(f"[bold]{name:>12}[/bold]  {value}", highlight=False, soft_wrap=True)
    if over := sum(account["over"] for run in runs for account in run["accounts"].values()):
        raise BenchError(f"{over} calls were one too many for their window")


def _environment(url: str, dsn: str, port: int) -> dict[str, str]:
    return {
        **os.environ,
        PORT: str(port),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
        "ACKLAST_BROKER_URL": url,
        "ACKLAST_LEDGER_DSN": dsn,
    }


async def _run(
    options: argparse.Namespace, url: str, metered: Metered, battered: Battered, say: Progress
) -> dict[str, Any]:
    """Until there were enough calls, or the time is up."""
    say.begin("proof", 1)
    async with Feed(url, {name: budget.backlog for name, budget in BUDGETS.items()}):
        began = time.monotonic()
        trouble = None
        try:
            await battered.start()
            trouble = asyncio.create_task(battered.batter(options.every))
            accounts = await _watch(options, metered, trouble, say)
        finally:
            if trouble:
                trouble.cancel()
                await asyncio.gather(trouble, return_exceptions=True)
            await battered.stop()
        accounts = await asyncio.to_thread(metered.accounts)
    seconds = time.monotonic() - began
    return {"accounts": accounts, "happened": dict(battered.happened), "seconds": seconds}


async def _watch(
    options: argparse.Namespace, metered: Metered, trouble: asyncio.Task[None], say: Progress
) -> Mapping[str, Any]:
    until = time.monotonic() + 60 * options.minutes
    calls, moved_at, say_at = 0, time.monotonic(), 0.0
    while True:
        if trouble.done():
            trouble.result()
        accounts = await asyncio.to_thread(metered.accounts)
        now, found = time.monotonic(), sum(account["arrivals"] for account in accounts.values())
        if found > calls:
            calls, moved_at = found, now
        if now > moved_at + _STUCK_S:
            raise BenchError(f"nothing is called any more, after {calls} calls")
        if now > say_at:
            say_at = now + _SAY_EVERY_S
            worst = ", ".join(f"{name} {each['worst']}/{each['count']}" for name, each in accounts.items())
            over = sum(account["over"] for account in accounts.values())
            say.say(f"{calls:,} calls, {over} over; worst {worst}")
        if calls >= options.calls or now > until:
            return accounts
        await asyncio.sleep(_POLL_S)


def _kept(path: Path | None, run: dict[str, Any]) -> list[dict[str, Any]]:
    """All runs in a file, this one added."""
    if path is None:
        return [run]
    with path.open("a") as file:
        file.write(json.dumps(run) + "\n")
    return [json.loads(line) for line in path.read_text().splitlines()]


def _report(runs: Sequence[dict[str, Any]]) -> Report:
    happened: dict[str, int] = {}
    for run in runs:
        for what, times in run["happened"].items():
            happened[what] = happened.get(what, 0) + times
    seconds = sum(run["seconds"] for run in runs)
    accounts = [account for run in runs for account in run["accounts"].values()]
    calls = sum(account["arrivals"] for account in accounts)
    stalled_s = max(account["stalled_s"] for account in accounts)
    return Report(
        "proof",
        f"{calls:,} calls in {len(runs)} runs and {seconds / 60:.0f} minutes, every window metered",
        ("budget", "quota", "calls", "worst window", "calls over quota", "429"),
        [_row(name, [run["accounts"][name] for run in runs]) for name in BUDGETS],
        {},
        (
            f"longest stall of the meter: {stalled_s:.3f} s (arrival_bound_s: {BOUND_S:g} s)",
            *(f"{times} times: {what}" for what, times in sorted(happened.items())),
        ),
    )


def _row(name: str, accounts: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    budget = BUDGETS[name]
    return (
        name,
        f"{budget.count:,} per {budget.period_s:g} s",
        f"{sum(account['arrivals'] for account in accounts):,}",
        f"{max(account['worst'] for account in accounts):,}",
        f"{sum(account['over'] for account in accounts):,}",
        f"{sum(account['refused'] for account in accounts):,}",
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench-proof ARGS=...", description=__doc__)
    add = parser.add_argument
    add("--calls", type=int, default=1_000_000, help="how many, at least (default 1,000,000)")
    add("--minutes", type=float, default=60, help="and no longer than this (default 60)")
    add("--daemons", type=int, default=4, help="how many (default 4)")
    add("--every", type=float, default=5, help="seconds between two troubles, on average (default 5)")
    add("--seed", type=int, help="of the troubles (default: another each time)")
    add(
        "--excess",
        type=float,
        default=0,
        help="part by which daemons go above the quota: the meter must see it",
    )
    add("--json", type=Path, metavar="FILE", help="add this run to the file, and report all that are in it")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    return carry_out(lambda out, progress: prove(options, out, progress))


if __name__ == "__main__":
    sys.exit(main())
