"""Enqueueing a file for real, and the accounts of its jobs and its run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import aio_pika
import asyncpg
import pytest

from acklast.cli import enqueue as enqueue_module
from acklast.errors import Exit
from acklast_topology.chunks import Chunking
from harness import Broker, eventually, until
from harness.command import Command, Ended
from harness.daemon import Daemon

QUEUE = "acklast.v1.cleanup.work"


@pytest.fixture
def command(tmp_path: Path, broker: Broker, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, broker.url, ledger_dsn, capsys)


def enqueue(command: Command, lines: Iterable[str], *options: str, name: str = "rows.csv") -> Ended:
    file = command.directory / name
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return command("enqueue", "cleanup", str(file), "--run", "r1", "--key", "{run}:{id}", "--json", *options)


def counts(ended: Ended) -> dict[str, int]:
    """The counts of the summary that are not zero."""
    return {fate: count for fate, count in ended.lines[-1]["counts"].items() if count}


def messages(broker: Broker) -> list[aio_pika.abc.AbstractIncomingMessage]:
    """Everything in the work queue, taken."""

    async def take() -> list[aio_pika.abc.AbstractIncomingMessage]:
        async with await broker.connect() as connection:
            queue = await (await connection.channel()).get_queue(QUEUE)
            found = []
            while (message := await queue.get(no_ack=True, fail=False)) is not None:
                found.append(message)
            return found

    return asyncio.run(take())


def execute(dsn: str, statement: str, *args: object) -> None:
    async def do() -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute(statement, *args)
        await connection.close()

    asyncio.run(do())


# --- enqueue -----------------------------------------------------------------------------------------


def test_rows_become_jobs_that_keep_the_contract(command: Command, broker: Broker) -> None:
    done = enqueue(
        command, ["id,note", "1,süß", "2,b"], "--type", "cleanup.v1", "--deadline", "2040-01-01T00:00:00Z"
    )
    assert done.exit == Exit.OK, done
    assert counts(done) == {"accepted": 2}
    assert done.lines[-1]["complete"] is True
    first = messages(broker)[0]
    assert first.headers["job-key"] == "r1:1"
    assert first.headers["run"] == "r1"
    assert first.headers["deadline"] == "2040-01-01T00:00:00+00:00"
    assert first.type == "cleanup.v1"
    assert json.loads(first.body) == {"id": "1", "note": "süß"}
    assert first.delivery_mode is aio_pika.DeliveryMode.PERSISTENT


def test_every_row_is_accounted_for(command: Command, broker: Broker) -> None:
    rows = ["id,note", "1,a", "1,a", "2,b", "2,other", "3", ",x", "4,d"]
    done = enqueue(command, rows)
    assert done.exit == Exit.INCOMPLETE
    assert counts(done) == {"accepted": 3, "duplicate": 1, "conflict": 1, "malformed": 2}
    told = {(item["line"], item["key"], item["fate"]) for item in done.lines[:-1]}
    assert told == {(5, "r1:2", "conflict"), (6, None, "malformed"), (7, None, "malformed")}
    assert done.lines[-1]["rows"] == 7
    assert len(messages(broker)) == 3


def test_repeating_is_safe(command: Command, ledger_dsn: str) -> None:
    rows = ["id", *map(str, range(20))]
    assert counts(enqueue(command, rows)) == {"accepted": 20}
    execute(ledger_dsn, "update acklast.jobs set state = 'done', fence = 1 where key < 'r1:15'")
    again = enqueue(command, rows)
    assert again.exit == Exit.OK
    assert counts(again) == {"again": 13, "duplicate": 7}


def test_a_key_with_other_content_is_a_conflict_and_not_published(command: Command, broker: Broker) -> None:
    enqueue(command, ["id,note", "1,a"])
    done = enqueue(command, ["id,note", "1,changed"])
    assert done.exit == Exit.INCOMPLETE
    assert counts(done) == {"conflict": 1}
    assert len(messages(broker)) == 1


def test_json_lines_are_sent_as_they_stand(command: Command, broker: Broker) -> None:
    done = enqueue(command, ['{"id": 7, "price": 1.10}', "[]"], name="rows.jsonl")
    assert counts(done) == {"accepted": 1, "malformed": 1}
    (message,) = messages(broker)
    assert message.body == b'{"id": 7, "price": 1.10}'


def test_a_stop_ends_at_the_first_bad_row_and_keeps_what_came_before(
    command: Command, broker: Broker
) -> None:
    done = enqueue(command, ["id,note", "1,a", "bad", "2,b"], "--on-error", "stop")
    assert done.exit == Exit.INCOMPLETE
    assert counts(done) == {"accepted": 1, "malformed": 1}
    assert done.lines[-1]["complete"] is False
    assert len(messages(broker)) == 1


def test_a_large_file_goes_in_chunks(
    command: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueue_module, "CHUNKING", Chunking(jobs=300))
    done = enqueue(command, ["id", *map(str, range(1000)), "5"])
    # Line 7 is in an earlier chunk: to the ledger it is open, and published again, which is safe.
    assert counts(done) == {"accepted": 1000, "again": 1}
    assert len(messages(broker)) == 1001
    assert command("runs", "show", "r1", "--json").document["manifest"] == 1000


def test_what_the_broker_refuses_is_told_and_can_be_repeated(command: Command, broker: Broker) -> None:
    command("topology", "apply")
    policy = {"pattern": QUEUE, "definition": {"max-length": 0}, "apply-to": "queues"}
    broker.management.call("PUT", f"policies/{broker.vhost}/full", policy)
    # More than are in flight at once: the queue says that it is full when it has some.
    done = enqueue(command, ["id", *map(str, range(3000))])
    assert done.exit == Exit.INCOMPLETE
    assert counts(done)["refused"] > 0
    broker.management.call("DELETE", f"policies/{broker.vhost}/full")
    assert "refused" not in counts(enqueue(command, ["id", *map(str, range(3000))]))


def test_a_lane_that_is_not_on_the_broker_is_an_error_where_it_may_only_be_looked_for(
    command: Command,
) -> None:
    command.configure(more='declare = "verify"')
    done = enqueue(command, ["id", "1"])
    assert done.exit == Exit.CONFIG
    assert "topology apply" in json.loads(done.err)["error"]["remedy"]
    assert command("runs", "show", "r1").exit == Exit.NOT_FOUND


def test_a_lane_that_is_not_configured_is_an_error(command: Command) -> None:
    file = command.directory / "rows.csv"
    file.write_text("id\n1\n")
    done = command("enqueue", "clenup", str(file), "--run", "r1", "--key", "{id}")
    assert done.exit == Exit.CONFIG
    assert "Did you mean 'cleanup'?" in done.err


def test_a_file_that_lacks_the_keys_column_is_an_error_before_anything_is_sent(
    command: Command,
) -> None:
    done = enqueue(command, ["no", "1"])
    assert done.exit == Exit.DATA
    assert command("runs", "show", "r1").exit == Exit.NOT_FOUND


def test_people_get_the_list_and_the_summary(command: Command) -> None:
    file = command.directory / "rows.csv"
    file.write_text("id,note\n1,a\n2\n")
    done = command("enqueue", "cleanup", str(file), "--run", "r1", "--key", "{id}")
    assert done.out.splitlines() == [
        "line 3: malformed (has 1 values for 2 columns)",
        "run r1, lane cleanup: 2 rows",
        "  accepted           1  promised and confirmed",
        "  malformed          1  no job; correct the row",
    ]
    assert done.err == ""


def test_a_ledger_that_does_not_answer_ends_it_before_anything_is_published(
    command: Command, broker: Broker
) -> None:
    command.configure(dsn="postgresql://127.0.0.1:1/x")
    done = enqueue(command, ["id", "1"])
    assert done.exit == Exit.UNAVAILABLE
    assert done.lines[-1]["complete"] is False
    assert messages(broker) == []


def test_ctrl_c_tells_what_was_done_and_leaves_it_safe_to_repeat(command: Command, broker: Broker) -> None:
    command("topology", "apply")
    file = command.directory / "rows.csv"
    file.write_text("id\n" + "".join(f"{n}\n" for n in range(60_000)))
    program = [sys.executable, "-m", "acklast", "enqueue", "cleanup", str(file), "--run", "r1"]
    options = ["--key", "{run}:{id}", "--json", "--config", str(command.config)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")}
    process = subprocess.Popen(
        [*program, *options], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until(lambda: command("runs", "show", "r1").exit == Exit.OK, timeout_s=30)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert json.loads(err)["error"]["what"] == "interrupted"
    summary = json.loads(out)
    assert summary["complete"] is False
    assert 0 <= summary["rows"] < 60_000
    assert command("runs", "show", "r1", "--json").document["balanced"] is True


# --- the accounts ------------------------------------------------------------------------------------


def test_a_run_proves_its_balance(command: Command, ledger_dsn: str) -> None:
    enqueue(command, ["id", *map(str, range(5))])
    done = command("runs", "show", "r1")
    assert done.exit == Exit.OK
    assert done.out.splitlines()[0] == "run r1: 5 open"
    assert done.out.splitlines()[-1] == (
        "manifest 5 = done 0 + waiting 0 + claimed 0 + queued 5 + dead 0 + unresolved 0 + cancelled 0:"
        " balances"
    )
    execute(ledger_dsn, "delete from acklast.jobs where key = 'r1:3'")
    lost = command("runs", "show", "r1", "--json")
    assert lost.exit == Exit.UNFIT
    assert lost.document["balanced"] is False
    assert lost.document["proof"].endswith("= 4: 1 missing")


def test_a_job_tells_its_life(command: Command) -> None:
    enqueue(command, ["id", "1"])
    shown = command("jobs", "show", "r1:1")
    assert shown.exit == Exit.OK
    assert shown.out.splitlines()[0] == "r1:1 in lane cleanup: queued"
    assert "enqueued  run r1" in shown.out
    document = command("jobs", "show", "r1:1", "--lane", "cleanup", "--json").document
    assert document["key"] == "r1:1"
    assert document["jobs"][0]["state"] == "queued"
    assert document["jobs"][0]["timeline"][0]["what"] == "enqueued"


async def test_the_accounts_of_jobs_that_a_daemon_has_done(command: Command) -> None:
    async with asyncio.timeout(100):
        await asyncio.to_thread(enqueue, command, ["id", "1", "2", "bad"])
        with Daemon(command.config, "one", env={}) as daemon:
            await daemon.says("job.settled", key="r1:bad")
            await eventually(lambda: len(daemon.said("job.settled")) == 3)
            assert await daemon.drained() == Exit.OK
        run = await asyncio.to_thread(command, "runs", "show", "r1", "--json")
        done, dead = [
            (await asyncio.to_thread(command, "jobs", "show", key, "--json")).document["jobs"][0]
            for key in ("r1:1", "r1:bad")
        ]
    assert run.exit == Exit.OK
    assert {state: n for state, n in run.document["counts"].items() if n} == {"done": 2, "dead": 1}
    assert (done["state"], done["result"]) == ("done", {"cleaned": "1"})
    moments = [moment["what"] for moment in done["timeline"] if moment["what"] != "published"]
    assert moments == ["enqueued", "claimed", "effect", "recorded", "settled"]
    assert (dead["state"], dead["reason"]) == ("dead", "no_such_house")
    assert "attempt 1 permanent" in [moment["what"] for moment in dead["timeline"]]
    assert dead["letters"][0]["reason"] == "no_such_house"


def test_what_the_ledger_does_not_know_is_not_found(command: Command) -> None:
    job, run = command("jobs", "show", "r1:1"), command("runs", "show", "r1", "--json")
    assert (job.exit, run.exit) == (Exit.NOT_FOUND, Exit.NOT_FOUND)
    assert "the ledger knows no job 'r1:1' in any lane" in job.err
    assert json.loads(run.err)["error"]["exit"] == 3
