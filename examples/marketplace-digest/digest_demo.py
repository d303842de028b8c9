"""A marketplace's weekly digest, fired by a schedule, killed half-way, and its account.

    python examples/marketplace-digest/digest_demo.py      (or: make demo-digest)

Broker and ledger are private ones, unless ACKLAST_BROKER_URL and ACKLAST_LEDGER_DSN name some: in those the
demo keeps to a namespace, a schema and runs of its own, and leaves its queues.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # for dev/, which is not installed

import asyncpg
from digest_account import INVARIANTS, Evidence, summary
from rich.console import Console

from acklast.config import Config, load
from dev.demo import run, tell, tell_counts, tell_invariants
from dev.stack import Stack
from dev.stage import Commands, Process, report_of, stand_in, wait_for

HERE: Final = Path(__file__).parent
MAIL_API: Final = HERE.parent / "rent-reminders" / "mail_api.py"
DO_NOT_MAIL: Final = "do-not-mail"
"""A list in the demo's directory; at first it has every 40th seller by mistake."""
NO_FAULTS: Final = ("--drop-every", "0", "--fail-every", "60", "--outage-at", "0")
DIGEST: Final = "weekly-digest"
RECEIPTS: Final = "payout-receipts"
KILL_AT: Final = 5
"""Pages of the digest's firing, of 22, after which it is killed."""
PAYOUTS: Final = """
insert into payouts
select 'P-' || lpad(n::text, 4, '0'), 'S-' || lpad((n * 4 + 1)::text, 4, '0'), n * 100,
       $1::timestamptz - n * interval '1 minute'
from generate_series(0, 299) as n
"""


@dataclass(frozen=True, slots=True)
class Show:
    """What the steps of the demo share."""

    say: Callable[[str], None]
    commands: Commands
    directory: Path
    shop: str
    """The marketplace's database: its DSN."""
    ledger: str
    config: Config

    def fetch(self, sql: str, *arguments: Any, dsn: str = "") -> list[asyncpg.Record]:
        """Ask the ledger, or another database, on a connection of the demo's own."""

        async def ask() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(dsn or self.ledger)
            try:
                return await connection.fetch(sql, *arguments)
            finally:
                await connection.close()

        return asyncio.run(ask())

    def last_time(self, schedule: str) -> datetime:
        """The last time that a schedule should have fired."""
        now = datetime.now(UTC)
        return list(self.config.schedules[schedule].when().between(now - timedelta(days=8), now))[-1]

    def pages(self, run: str) -> int:
        found = self.fetch("select pages from acklast.firings where run = $1", run)
        return found[0]["pages"] if found else 0

    def open_jobs(self) -> int:
        """Jobs of this demo that have something left to do; those that are to be published among them."""
        sql = """
            select (select count(*) from acklast.jobs where lane = any($1)
                    and state in ('queued', 'claimed', 'waiting')) + (select count(*) from acklast.outbox)
        """
        return int(self.fetch(sql, ["digest", "receipts"])[0][0])


# --- the steps, in order --------------------------------------------------------------------------------


def perform(show: Show) -> Evidence:
    """The whole story; what the sources say of it at the end."""
    show.commands.run("ledger", "migrate")
    show.commands.run("topology", "apply")
    monday, morning = show.last_time(DIGEST), show.last_time(RECEIPTS)
    keys = open_shop(show, morning)
    [one] = show.commands.run("schedule", "next", DIGEST, "--count", "1")[0]["schedules"]
    show.say(f"the digest fires next at {one['next'][0]['local']} as {one['next'][0]['run']}")
    run, pages = fire_and_kill(show, monday)
    with Process(show.commands, show.directory / "scheduler.log", "scheduler") as scheduler:
        scheduler.says("firing.done")
        show.say(f"a scheduler has gone on behind page {pages} and promised the rest")
        [paid] = show.commands.run("schedule", "fire", RECEIPTS, "--at", morning.isoformat())
        show.say(
            f"{paid['firing']['promised']} receipts come in behind them, as {paid['run']}; a daemon begins"
        )
        words = ("run", "--instance", "demo")
        with Process(show.commands, show.directory / "daemon.log", *words) as daemon:
            daemon.says("daemon.ready")
            began = time.monotonic()
            show.say(f"the digest's run: {stands(show, run)}")
            show.say(f"when it is finished, by `acklast forecast`:\n{forecast(show, run)}")
            wait_for("every job is done", lambda: not show.open_jobs())
            redriven = mend_and_redrive(show, run)
            show.say(f"all is sent after {time.monotonic() - began:.1f} s: SIGTERM")
            exits = (daemon.stop(), scheduler.stop())
    [again] = show.commands.run("schedule", "fire", DIGEST, "--at", monday.isoformat())
    return evidence(show, keys, {DIGEST: run, RECEIPTS: paid["run"]}, pages, again, redriven, exits)


def open_shop(show: Show, morning: datetime) -> tuple[frozenset[str], frozenset[str]]:
    """The marketplace's tables; the sellers who are to get a digest, and the payouts."""

    async def make() -> tuple[frozenset[str], frozenset[str]]:
        connection = await asyncpg.connect(show.shop)
        try:
            await connection.execute((HERE / "marketplace.sql").read_text())
            await connection.execute(PAYOUTS, morning)
            wanted = await connection.fetch("select seller from sellers where wants_digest")
            paid = await connection.fetch("select payout from payouts")
        finally:
            await connection.close()
        return frozenset(row[0] for row in wanted), frozenset(row[0] for row in paid)

    return asyncio.run(make())


def fire_and_kill(show: Show, monday: datetime) -> tuple[str, int]:
    """Fire the digest that nobody fired on Monday, and kill that half-way; its run, and the pages by then."""
    run = show.config.schedules[DIGEST].run_of(DIGEST, monday)
    words = ("schedule", "fire", DIGEST, "--at", monday.isoformat())
    show.say(f"firing {run} by hand: it was missed")
    with Process(show.commands, show.directory / "fire.log", *words) as process:
        wait_for("half the digests are promised", lambda: show.pages(run) >= KILL_AT)
        process.kill()
    pages = show.pages(run)
    show.say(f"SIGKILL after {pages} pages")
    return run, pages


def mend_and_redrive(show: Show, run: str) -> Mapping[str, Any]:
    """Mend the list, and try again what died of it, one first; how the redrive ended."""
    [plan] = show.commands.run("redrive", "plan", "--run", run)
    show.say(
        f"{plan['letters']} digests died of {plan['kinds'][0]['reason']}, a list that is wrong; it is mended"
    )
    (show.directory / DO_NOT_MAIL).write_text("")
    number = str(plan["id"])
    how = ("--steps", "1,5,100%", "--rate", "50/s", "--why", "the list is mended")
    show.commands.run("redrive", "start", number, *how)
    [*_, ended] = show.commands.run(
        "redrive", "status", number, "--watch", "--timeout", "60s", accept=(0, 2, 4)
    )
    show.say(f"redrive {number} is {ended['status']}: {ended['done']} of {ended['letters']} done")
    return ended


def stands(show: Show, run: str) -> str:
    """How a run stands, as ``acklast runs show`` says it."""
    shown = show.commands.run("runs", "show", run, accept=(0, 4))[0]
    counts = ", ".join(f"{count} {state}" for state, count in shown["counts"].items() if count)
    return f"{counts}; to be finished by {shown['deadline']}"


def forecast(show: Show, run: str) -> str:
    """When a run is finished, and what holds its lane back, as ``acklast forecast`` says it."""
    [found] = show.commands.run("forecast", "--run", run, accept=(0, 7, 8))
    rows = [f"  {'':24}{'open':>6}  {'finished in':>11}  {'4 of 5 times':>13}  bound by"]
    rows += [_forecast_row(one) for one in (*found["lanes"], *found["runs"])]
    return "\n".join([*rows, *(f"  {one['lane']}: {one['says']}" for one in found["lanes"])])


def _forecast_row(one: Mapping[str, Any]) -> str:
    name = one.get("run") or f"lane {one['lane']}"
    finish, band = _seconds(one["finish_s"]), f"{_seconds(one['earliest_s'])} to {_seconds(one['latest_s'])}"
    return f"  {name:24}{one['jobs']:>6,}  {finish:>11}  {band:>13}  {one['constraint']}"


def _seconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.0f} s"


def evidence(
    show: Show,
    keys: tuple[frozenset[str], frozenset[str]],
    runs: Mapping[str, str],
    pages: int,
    again: Mapping[str, Any],
    redriven: Mapping[str, Any],
    exits: tuple[int, ...],
) -> Evidence:
    rows = show.fetch(
        "select key, lane, state, recorded_at from acklast.jobs where lane in ('digest', 'receipts')"
    )
    history = show.commands.run("schedule", "history", DIGEST)[0]["history"]
    return Evidence(
        digests=frozenset(f"{runs[DIGEST]}:{seller}" for seller in keys[0]),
        receipts=frozenset(f"receipt:{payout}" for payout in keys[1]),
        jobs={row["key"]: dict(row) for row in rows},
        runs={name: show.commands.run("runs", "show", run, accept=(0, 4))[0] for name, run in runs.items()},
        digest=next(one for one in history if one["run"] == runs[DIGEST]),
        pages_at_kill=pages,
        again=again,
        redriven=redriven,
        api=report_of(show.commands.env["MAIL_API_URL"]),
        exits=exits,
    )


# --- around it ------------------------------------------------------------------------------------------


def demonstrate(console: Console, servers: Stack) -> bool:
    """The demo on these servers; whether every invariant holds."""
    name = f"demo_{token_hex(3)}"
    dsn = servers.ledger.dsn
    shop = f"{dsn}{'&' if '?' in dsn else '?'}search_path={name}"
    with (
        tempfile.TemporaryDirectory(prefix="acklast-demo-") as directory,
        stand_in(MAIL_API, "--port", "0", *NO_FAULTS) as api,
    ):
        env = {
            **os.environ,
            **servers.environment(),
            "ACKLAST__NAMESPACE": name,
            "ACKLAST__STATE_DIR": directory,
            "ACKLAST__SCHEDULES__PAYOUT_RECEIPTS__DSN": shop,
            "MARKETPLACE_DSN": shop,
            "MAIL_API_URL": api,
            "DO_NOT_MAIL": str(Path(directory) / DO_NOT_MAIL),
        }
        wrong = " ".join(f"S-{number:04}" for number in range(1, 1200, 40))
        (Path(directory) / DO_NOT_MAIL).write_text(wrong)
        commands, config = Commands(HERE, env), load(HERE / "acklast.toml", env)
        show = Show(lambda text: tell(console, text), commands, Path(directory), shop, dsn, config)
        show.fetch(f"create schema {name}")
        try:
            found = perform(show)
        finally:
            show.fetch(f"drop schema {name} cascade")
    broken = {one.__doc__ or one.__name__: list(one(found)) for one in INVARIANTS}
    conclude(console, found, broken)
    return not any(broken.values())


def conclude(console: Console, found: Evidence, broken: Mapping[str, list[str]]) -> None:
    tell_counts(console, summary(found))
    tell_invariants(console, broken)


if __name__ == "__main__":
    sys.exit(run(demonstrate))
