"""``acklast top`` on a terminal and without one, beside real servers and a daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from acklast.cli.exits import INTERRUPTED
from acklast.errors import Exit
from acklast.ledger.api import State
from acklast.ledger.backlog import read_backlog
from acklast.ledger.connect import Address
from acklast.ledger.standing import read_standing
from acklast.ledger.together import Together
from acklast.ledger.workers import read_workers
from harness import Broker, eventually
from harness.command import Command
from harness.proxy import Proxy
from harness.scripted import LANE
from harness.site import RUN, scripted, site
from harness.terminal import Terminal


async def test_without_a_terminal_it_is_printed_once(broker: Broker, ledger_dsn: str, tmp_path: Path) -> None:
    async with site(tmp_path, broker.url, ledger_dsn, quota="100 per 1 s") as place:
        jobs = [
            scripted("a", "done"),
            scripted("b", "permanent"),
            scripted("c", {"do": "wait", "gate": "go"}),
        ]
        await place.promise([*jobs, scripted("d", "done")])
        with place.daemon():
            await place.publish(*jobs)
            await place.reaches("a", State.DONE)
            await place.reaches("b", State.DEAD)

            async def told() -> bool:
                return bool((await place.command("top", "--once"))["lanes"][0]["in_flight"] == 1)

            await eventually(told, 30, "the daemon tells of what it runs")
            told_all = await place.command("top", "--once", "--sort", "ready")
            [lane] = told_all["lanes"]
            assert (lane["lane"], lane["state"], lane["ready"], lane["slots"]) == (LANE, "running", 0, 5)
            assert (lane["dead"], lane["queued"], lane["error_share"]) == (1, 1, 0.5)
            [run] = told_all["runs"]
            assert (run["run"], run["open"], run["total"], run["dead"]) == (RUN, 2, 4, 1)
            [budget] = told_all["budgets"]
            assert (budget["budget"], budget["quota"], budget["permits"]) == ("api", "100 per 1 s", 100)
            [worker] = told_all["workers"]
            assert (worker["state"], worker["lanes"], worker["in_flight"]) == ("live", [LANE], 1)
            assert (told_all["ledger"], told_all["broker"]) == (None, None)
            assert (await place.command("top", "--lane", LANE))["lanes"][0]["lane"] == LANE
            place.open_gate("go")
        assert await place.exit_of("top", "--lane", "nope") == Exit.USAGE


async def test_all_of_it_is_one_round_trip(broker: Broker, ledger_dsn: str, tmp_path: Path) -> None:
    async with site(tmp_path, broker.url, ledger_dsn) as place:
        await place.promise([scripted("a", "done")])
        operations = await Together.connect(Address.of(ledger_dsn))
        statements: list[str] = []
        operations.connection.add_query_logger(lambda query: statements.append(query.query))
        seen = []
        try:
            for _ in range(3):  # the driver learns the types of the second
                statements.clear()
                await operations.refresh()
                standing, backlog = await read_standing(operations), await read_backlog(operations)
                seen.append((standing.lanes, await read_workers(operations, ended=False), backlog.runs))
        finally:
            operations.close()
        assert len(statements) == 1
        assert seen[0] == seen[1] == seen[2]
        assert seen[2][2][0].counts == {State.QUEUED: 1}


async def test_a_column_that_comes_meanwhile_is_read_too(ledger_dsn: str) -> None:
    """As a migration adds one while somebody looks."""
    operations = await Together.connect(Address.of(ledger_dsn))
    try:
        await operations.connection.execute("create table public.t (a int); insert into public.t values (1)")
        asked = ("select * from public.t where a = $1", 1)
        assert [dict(row) for row in await operations.fetch(*asked)] == [{"a": 1}]
        await operations.connection.execute("alter table public.t add column b int default 2")
        for _ in range(2):
            await operations.refresh()
            [row] = await operations.fetch(*asked)
            # Whichever way a reading takes its rows apart.
            assert (dict(row), dict(row.items())) == ({"a": 1, "b": 2}, {"a": 1, "b": 2})
            assert (row["b"], row[1], row[1:], tuple(row), [*row.values()]) == (2, 2, (2,), (1, 2), [1, 2])
            assert ("b" in row, row.get("c", 3), len(row), [*row.keys()]) == (True, 3, 2, ["a", "b"])
    finally:
        operations.close()


async def test_on_a_terminal_it_goes_on_through_whatever_happens(
    broker: Broker, ledger_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Proxy(ledger_dsn) as proxy:
        command = Command(tmp_path, broker.url, proxy.url, capsys)
        port = urlsplit(proxy.url).port
        assert port is not None
        with Terminal(tmp_path, "top", "--every", "1s") as terminal:
            assert "stopped" in await terminal.shows("cleanup")
            await terminal.shows("acklast.v1.cleanup.work is not on the broker")
            assert "\x1b[?1049h" in terminal.raw()
            assert all(len(line) <= 80 for line in terminal.lines())
            terminal.press("s")
            await terminal.shows("lanes by lane")
            terminal.resize(12, 50)

            async def narrow() -> bool:
                """A picture of the size before may be on its way still."""
                terminal.forget()
                await terminal.shows("q leaves")
                return max(map(len, terminal.lines())) <= 50

            await eventually(narrow, 60, "it follows the terminal's size")

            await proxy.__aexit__()
            await terminal.shows("the ledger is away")
            async with Proxy(ledger_dsn, port):

                async def back() -> bool:
                    terminal.forget()
                    await terminal.shows("q leaves")
                    return "away" not in "\n".join(terminal.lines())

                await eventually(back, 60, "the ledger is back")
                terminal.press("q")
                assert await terminal.ended() == Exit.OK
                assert "\x1b[?1049l" in terminal.raw()
        assert command.config.exists()


@pytest.mark.soak
def test_a_program_is_told_again_and_again(
    broker: Broker, ledger_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Command(tmp_path, broker.url, ledger_dsn, capsys)
    command = [sys.executable, "-m", "acklast", "top", "--every", "1s", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        shots = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait() == INTERRUPTED
    assert shots[0]["at"] < shots[1]["at"]
    assert [lane["lane"] for lane in shots[1]["lanes"]] == ["cleanup"]


@pytest.mark.soak
async def test_an_interrupt_leaves(
    broker: Broker, ledger_dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(tmp_path, broker.url, ledger_dsn, capsys)
    with Terminal(tmp_path, "top") as terminal:
        await terminal.shows("cleanup")
        terminal.interrupt()
        assert await terminal.ended() == Exit.OK
    assert command.config.exists()
