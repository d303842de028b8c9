"""Reminds 600 tenants of their rent through a mail API, with no Python in the lane, and accounts for each.

    python examples/rent-reminders/reminders.py      (or: make demo-reminders)

Broker and ledger are private ones, unless ACKLAST_BROKER_URL and ACKLAST_LEDGER_DSN name some: in those the
demo keeps to a namespace and a run of its own, and leaves its queues.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))  # for dev/, which is not installed

import tenants
from account import INVARIANTS, Evidence, name_of, summary
from rich.console import Console

from acklast.cli.output import plain
from acklast.ledger.postgres import PostgresLedger
from dev.demo import run, tell, tell_counts, tell_invariants
from dev.stack import Stack
from dev.stage import Stuck, wait_for

HERE: Final = Path(__file__).parent
IN_TIME: Final = 600
TOO_LATE: Final = 25
LANE: Final = "reminders"
SHORT_S: Final = 15
"""From the start of enqueueing the late ones, which takes seconds on a busy machine, to their deadline.

No daemon runs meanwhile.
"""


@dataclass(frozen=True, slots=True)
class Show:
    """What the steps of the demo share."""

    say: Callable[[str], None]
    servers: Stack
    directory: Path
    run: str
    api: str
    env: Mapping[str, str]

    def acklast(self, *words: str, accept: Sequence[int] = (0,)) -> list[dict[str, Any]]:
        """A command with ``--json``; what it printed. Raises ``Stuck`` where it fails."""
        done = subprocess.run(  # noqa: S603 - our own program
            self.line(*words, "--json"), env=self.env, cwd=HERE, capture_output=True, text=True, check=False
        )
        if done.returncode not in accept:
            raise Stuck(f"acklast {' '.join(words)} ended with {done.returncode}\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    @staticmethod
    def line(*words: str) -> list[str]:
        return [sys.executable, "-m", "acklast", *words]

    def account(self) -> dict[str, Any]:
        """``acklast runs show``; one that does not balance is for the invariants to tell."""
        return self.acklast("runs", "show", self.run, accept=(0, 4))[0]

    def report(self) -> dict[str, Any]:
        """What the mail API says of itself."""
        with urllib.request.urlopen(f"{self.api}/report", timeout=10) as answer:  # noqa: S310 - our own process
            found: dict[str, Any] = json.load(answer)
        return found


# --- the steps, in order --------------------------------------------------------------------------------


def perform(show: Show) -> Evidence:
    """The whole story; what the sources say of it at the end."""
    show.acklast("ledger", "migrate")
    show.acklast("topology", "apply")
    show.acklast("check")
    in_time = enqueue(show, 1, IN_TIME, datetime.now(UTC) + timedelta(minutes=10))
    too_late = enqueue(show, IN_TIME + 1, TOO_LATE, soon := datetime.now(UTC) + timedelta(seconds=SHORT_S))
    wait_for("the second deadline has passed", lambda: datetime.now(UTC) > soon)
    with daemon(show) as process:
        show.say("the daemon works; the API drops answers, fails, and goes out of order for a while")
        began = time.monotonic()
        wait_for("the run is over", lambda: not show.account()["open"])
        show.say(f"the run is over after {time.monotonic() - began:.1f} s: SIGTERM")
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    return Evidence(
        in_time=in_time,
        too_late=too_late,
        jobs=asyncio.run(jobs_of(show, in_time | too_late)),
        run=show.account(),
        api=show.report(),
        exit=code,
        receipt=log_of(show)[-1],
    )


def enqueue(show: Show, first: int, count: int, deadline: datetime) -> frozenset[str]:
    """Tenants from a CSV file, as a cron job would do it; their keys."""
    show.say(f"enqueueing {count} reminders, deadline {deadline:%H:%M:%S}")
    file = show.directory / f"tenants-{first}.csv"
    with file.open("w", newline="", encoding="utf-8") as to:
        tenants.write(to, first, count)
    key = ("--run", show.run, "--key", "{run}:{tenant}", "--type", "rent.reminder.v1")
    show.acklast("enqueue", LANE, str(file), *key, "--deadline", deadline.isoformat())
    return frozenset(f"{show.run}:{row['tenant']}" for row in tenants.tenants(first, count))


async def jobs_of(show: Show, keys: frozenset[str]) -> dict[str, Mapping[str, Any]]:
    """Every job as ``acklast jobs show KEY --json`` gives it, without a process for each."""
    ledger = await PostgresLedger.connect(show.servers.ledger.dsn)
    try:
        found = await asyncio.gather(*(ledger.jobs(key, LANE) for key in keys))
    finally:
        await ledger.close()
    return {view.key: plain(view) for views in found for view in views}


# --- the processes --------------------------------------------------------------------------------------


@contextmanager
def daemon(show: Show) -> Iterator[subprocess.Popen[bytes]]:
    """``acklast run``, ready to work. It is killed where it did not end by itself."""
    with (show.directory / "daemon.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own program
            show.line("run", "--instance", "demo", "--json"), env=show.env, cwd=HERE, stderr=log
        )
    try:
        wait_for("the daemon is ready", lambda: any(line["event"] == "daemon.ready" for line in log_of(show)))
        yield process
    finally:
        process.kill()
        process.wait()


def log_of(show: Show) -> list[dict[str, Any]]:
    lines = (show.directory / "daemon.log").read_text(errors="replace").rpartition("\n")[0].splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


@contextmanager
def mail_api() -> Iterator[str]:
    """The stand-in, in a process of its own; its URL."""
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, str(HERE / "mail_api.py"), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise Stuck(f"the mail API ended with {process.wait()}")
        yield json.loads(line)["url"]
    finally:
        process.terminate()
        process.wait()


# --- around it ------------------------------------------------------------------------------------------


def demonstrate(console: Console, servers: Stack) -> bool:
    """The demo on these servers; whether every invariant holds."""
    name = f"demo-{token_hex(3)}"
    with tempfile.TemporaryDirectory(prefix="acklast-demo-") as directory, mail_api() as api:
        env = {
            **os.environ,
            **servers.environment(),
            "ACKLAST__NAMESPACE": name,
            "ACKLAST__STATE_DIR": directory,
            "ACKLAST__LANES__REMINDERS__HTTP__URL": f"{api}/v1/messages?campaign={{{{ run }}}}",
        }
        show = Show(lambda text: tell(console, text), servers, Path(directory), name, api, env)
        found = perform(show)
        broken = {name_of(one): list(one(found)) for one in INVARIANTS}
        conclude(console, found, broken, log_of(show))
    return not any(broken.values())


def conclude(
    console: Console, found: Evidence, broken: Mapping[str, list[str]], log: Sequence[Mapping[str, Any]]
) -> None:
    tell_counts(console, summary(found))
    for line in log:
        if line["event"].startswith("breaker."):
            tell(console, f"{line['timestamp'][11:19]}  {line['event']} {line.get('pause_s', '')}")
    held = sorted(key for key in found.in_time if found.ended(key) == "unresolved")
    tell(console, f"for a person to decide: {', '.join(held)}\n")
    tell_invariants(console, broken)


if __name__ == "__main__":
    sys.exit(run(demonstrate))
