"""Daemons and commands with the least rights: all that they do, and nothing of what they may not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast.ledger.connect import Address
from acklast.ledger.missing import Search
from harness import Broker, Databases
from harness.asking import Asking
from harness.command import Command
from harness.daemon import Daemon
from harness.logins import Logins, executed, logins
from harness.reconciled import lost
from harness.scripted import DIRECTORY, LANE, TYPE
from harness.site import scripted, site

SCHEDULE = f"""
[schedules.digest]
lane = "{LANE}"
type = "{TYPE}"
cron = "0 0 1 1 *"
key = "{{run}}:{{id}}"
sql = '''select n as id, '[{{"do": "done"}}]'::jsonb as steps from generate_series(1, 3) n'''
"""
OLD = """
insert into acklast.jobs (lane, key, state, fence, attempts, claims, recorded_at, run)
select 'work', 'old-' || n, 'dead', 1, 1, 1, now() - interval '91 days', 'old' from generate_series(1, 5) n;
insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, ended_at, worker, version)
select 'work', 'gone-' || n, 1, 1, 'crashed', '', now() - interval '91 days', 'w', '1'
from generate_series(1, 3) n;
insert into acklast.dead_letters (lane, reason, failure, payload, first_failure_at, last_failure_at, worker,
                                  version)
select 'work', 'r', 'f', 'x', at, at, 'w', '1'
from unnest('{91,50}'::int[]) as d (ago)
     cross join lateral (select now() - make_interval(days => ago)) as t (at);
insert into acklast.workers (instance, worker, version, lease_s, lease_until, ended_at)
select 'old', 'w', '1', 1, at, at from (select now() - interval '91 days') as t (at);
insert into acklast.dead_counts (lane, run, reason, failure, version, letters, arrived)
select 'l', '', 'r', 'f', '1', 1, 1 from generate_series(1, 2500)
"""
DUE = """
insert into acklast.firings (schedule, scheduled_at, run, state, cause)
values ('digest', '2026-01-01Z', 'digest-1', 'open', 'time')
"""


@pytest.fixture
def roles(databases: Databases, ledger_dsn: str) -> Iterator[Logins]:
    with logins(databases, ledger_dsn) as made:
        yield made


# --- a daemon ---------------------------------------------------------------------------------------------


async def test_a_daemon_does_all_of_its_work_under_its_role(
    tmp_path: Path, broker: Broker, roles: Logins
) -> None:
    await executed(roles.owner, OLD, DUE)
    env = {
        "ACKLAST__LEDGER__DSN": roles.as_("daemon"),
        "ACKLAST__LEDGER__PRUNE_EVERY_S": "1",
        "ACKLAST__LEDGER__RECONCILE_EVERY_S": "1",
    }
    async with site(
        tmp_path,
        broker.url,
        roles.owner,
        custody="ledger",
        quota="1000 per 1 s",
        app="harness.reconciled:app",
        on_unknown="hold",
        more=SCHEDULE,
        keep_payload_s=40 * 86_400,
    ) as place:
        jobs = [
            scripted("fine", "done"),
            scripted("again", "transient", {"do": "rate_limited", "retry_after": 0.1}, "done"),
            scripted("never", "permanent"),
            scripted("promised", {"do": "enqueue", "key": "follows", "then": ""}),
            scripted("redriven", "permanent", "done"),
            lost("happened", {"say": True}),
            lost("had-not", {"say": False}),
        ]
        await place.promise(jobs)
        with (
            place.daemon(env=env) as daemon,
            Daemon(place.config, "two", env=env, command="scheduler") as scheduler,
        ):
            await place.publish(*jobs, scripted("stray", "done", type="nobody.v1"))
            async with asyncpg.create_pool(roles.as_("publisher"), min_size=1, max_size=1) as application:
                body = json.dumps({"steps": [{"do": "done"}]})
                await application.execute("select acklast.enqueue($1, 'outbox', $2, $3)", LANE, body, TYPE)
            for key in ("fine", "again", "follows", "outbox", "digest-1:3"):
                await place.reaches(key, State.DONE)
            await place.reaches("never", State.DEAD)
            [letter] = (await place.reaches("redriven", State.DEAD)).letters
            plan = (await place.command("redrive", "plan", str(letter.id)))["id"]
            await place.command("redrive", "start", str(plan), "--why", "mended", "--force", "it is a test")
            await place.reaches("redriven", State.DONE)
            for key in ("happened", "had-not"):
                await place.reaches(key, State.UNRESOLVED)
            await place.command("unresolved", "reconcile", "happened", "had-not", "--why", "it is a test")
            for key in ("happened", "had-not"):
                await place.reaches(key, State.DONE)
            done = await daemon.says("prune.done")
            pruned = ("dead", "attempts", "letters", "payloads", "sessions")
            assert [done[name] for name in pruned] == [5, 3, 1, 1, 1]
            await place.quiet()
            assert await daemon.drained() == Exit.OK
            assert await scheduler.drained() == Exit.OK
            said = daemon.text() + scheduler.text()
        assert "denied" not in said
        assert "defect" not in said
        summed = await asyncpg.connect(roles.as_("reader"))
        assert await summed.fetchval("select count(*) from acklast.dead_counts where lane = 'l'") == 1
        await summed.close()


async def test_what_the_broker_has_lost_is_sought_under_the_daemons_role(roles: Logins) -> None:
    await executed(
        roles.owner,
        "insert into acklast.jobs (lane, key, state, enqueued_at)"
        " values ('l', 'k', 'queued', now() - interval '1 h')",
        "insert into acklast.custody (lane, key, header, body)"
        " values ('l', 'k', 'h', 'b'), ('l', 'over', '', '')",
    )
    search = await Search.connect(Address.of(roles.as_("daemon")))
    [(found, _, _)] = [step async for step in search.overdue(["l"], 1)]
    assert [(one.key, one.kept) for one in found] == [("k", True)]
    kept = await search.take(found[0])
    assert kept is not None
    assert kept.body == b"b"
    await search.sweep()
    await search.held()
    await search.close()
    reader = await asyncpg.connect(roles.as_("reader"))
    assert [row[0] for row in await reader.fetch("select key from acklast.custody")] == ["k"]
    await reader.close()


async def test_a_daemon_does_not_start_under_another_role(
    tmp_path: Path, broker: Broker, roles: Logins
) -> None:
    async with site(tmp_path, broker.url, roles.owner) as place:
        for role in ("reader", "operator"):
            env = {"ACKLAST__LEDGER__DSN": roles.as_(role), DIRECTORY: str(tmp_path)}
            with place.daemon(env=env) as daemon:
                assert await daemon.ended() == Exit.CONFIG
                assert "--roles" in daemon.text()


# --- commands ---------------------------------------------------------------------------------------------


LETTERS = """
insert into acklast.jobs (lane, key, state, fence, attempts, claims, run, result)
values ('cleanup', 'a', 'dead', 1, 1, 1, 'r1', null),
       ('cleanup', 'b', 'done', 1, 1, 1, 'r1', '{"mail": "b"}'),
       ('cleanup', 'c', 'queued', 0, 0, 0, 'r1', null),
       ('cleanup', 'u', 'unresolved', 1, 1, 1, 'r1', null),
       ('cleanup', 'v', 'unresolved', 1, 1, 1, 'r1', null);
insert into acklast.runs (run, manifest) values ('r1', 5);
insert into acklast.attempts (lane, key, fence, attempt, outcome, reason, detail, worker, version)
values ('cleanup', 'a', 1, 1, 'permanent', 'gone', 'nobody there', 'w', '1');
insert into acklast.dead_letters (lane, key, fence, run, reason, detail, failure, payload, headers, held,
                                  first_failure_at, last_failure_at, worker, version)
select 'cleanup', key, 1, 'r1', 'gone', 'nobody there', 'v1-1', 'secret', '{"a": "secret"}',
       key in ('u', 'v'), now(), now(), 'w', '1'
from unnest('{a,x,y,u,v}'::text[]) as k (key);
select acklast.enqueue('cleanup', 'b', '{}')
"""
WORKER = """
insert into acklast.workers (instance, worker, version, lease_s, lease_until, draining_at)
values ('one:1', 'one@host:41', '1', 15, now() + interval '1 h', now())
"""
WEEKLY = """
[schedules.weekly]
lane = "cleanup"
cron = "0 7 * * MON"
sql = "select n as id from generate_series(1, 3) n"
key = "{run}:{id}"
"""


@pytest.fixture
def command(tmp_path: Path, roles: Logins, capsys: pytest.CaptureFixture[str]) -> Command:
    made = Command(tmp_path, "amqp://nobody/", roles.owner, capsys)
    roles.sql(LETTERS)
    return made


def under(command: Command, dsn: str) -> None:
    command.configure(dsn=dsn)
    with command.config.open("a") as file:
        file.write(WEEKLY)


READS = (
    "dead groups",
    "dead list",
    "dead show 1",
    "dead export",
    "runs list",
    "runs list --by-header",
    "runs show r1",
    "runs proof r1 --out proof.csv",
    "jobs show a",
    "why a",
    "why u",
    "top",
    "lanes",
    "lanes history",
    "workers --all",
    "schedule list",
    "schedule next",
    "schedule history",
    "unresolved list",
    "unresolved show u",
    "redrive list",
    "audit",
)
REFUSED = (
    "dead show 1 --payload",
    "dead export --payload",
    "dead note 1 seen",
    "lanes pause cleanup --reason x",
    "workers drain one --why x",
    "unresolved resolve u --as done --why x",
    "unresolved reconcile u --why x",
    "redrive plan 1",
    "ledger erase --key a --why x",
    "ledger migrate",
)
CHANGES = (
    ("lanes pause cleanup --reason x", Exit.OK),
    ("lanes resume cleanup --reason x", Exit.OK),
    ("lanes set cleanup --concurrency 1 --reason x", Exit.OK),
    ("lanes set cleanup --clear --reason x", Exit.OK),
    ("dead note 1 seen", Exit.OK),
    ("dead drop 2 --why x", Exit.OK),
    ("runs set r1 --owner anna", Exit.OK),
    ("schedule pause weekly --reason x", Exit.OK),
    ("schedule resume weekly --reason x", Exit.OK),
    ("schedule fire weekly", Exit.OK),
    ("unresolved resolve u --as done --why x", Exit.OK),
    ("unresolved reconcile v --why x --no-wait", Exit.OK),
    ("unresolved resolve v --as retry --why x", Exit.OK),
    ("redrive plan 1", Exit.OK),
    ("redrive status 2", Exit.OK),
    ("redrive start 2 --why x", Exit.OK),
    ("redrive pause 2 --why x", Exit.OK),
    ("redrive resume 2 --why x", Exit.OK),
    ("redrive cancel 2 --why x", Exit.OK),
    ("runs cancel r1 --reason x", Exit.OK),
    ("ledger erase --key a --why x", Exit.OK),
    ("ledger erase --key b --why x", Exit.OK),
)


def test_who_looks_sees_all_but_messages_and_changes_nothing(
    command: Command, roles: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(command.directory)
    under(command, roles.as_("reader"))
    roles.sql(WORKER)
    for words in READS:
        told = command(*words.split())
        assert told.exit in (Exit.OK, Exit.UNFIT), (words, told)
        assert "secret" not in told.out
    listed = command("dead", "list", "--json").document["letters"]
    assert [(one["payload_bytes"], one["detail"]) for one in listed] == [(6, "nobody there")] * 5
    for words in REFUSED:
        told = command(*words.split())
        assert told.exit == Exit.CONFIG, (words, told)
        assert "may not" in told.err, words
        assert "secret" not in told.out + told.err


def test_an_operator_makes_every_change_and_looks_at_all(
    command: Command, roles: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(command.directory)
    under(command, roles.as_("operator"))
    assert "secret" in command("dead", "show", "1", "--payload").out
    for words, code in CHANGES:
        told = command(*words.split())
        assert told.exit == code, (words, told)
    roles.sql(WORKER)  # one that does not follow what is asked of lanes
    assert command("workers", "drain", "one", "--why", "x").exit == Exit.OK
    assert "secret" not in command("dead", "show", "1", "--payload").out
    entries = command("audit", "--json").document["entries"]
    assert {one["role"] for one in entries} == {f"{roles.prefix}_login_operator"}
    told = command("ledger", "migrate")
    assert (told.exit, "may not" in told.err) == (Exit.CONFIG, True)


def test_an_operator_counts_what_a_daemons_login_prunes(command: Command, roles: Logins) -> None:
    roles.sql(OLD.replace("'work'", "'cleanup'"))
    under(command, roles.as_("operator"))
    counted = command("ledger", "prune", "--dry-run", "--json")
    assert (counted.exit, counted.document["pruned"]["dead"]) == (Exit.OK, 5)
    refused = command("ledger", "prune")
    assert refused.exit == Exit.CONFIG
    assert "daemons work, and prune" in refused.err
    assert command("ledger", "prune", "--dry-run", "--json").document["pruned"]["dead"] == 5
    under(command, roles.as_("daemon"))
    assert command("ledger", "prune", "--json").document["pruned"]["dead"] == 5


def test_the_roles_are_made_by_the_command_and_told(command: Command, roles: Logins) -> None:
    ask = ("ledger", "migrate", "--roles", "--roles-prefix")
    names = [f"{roles.prefix}_{name}" for name in ("daemon", "operator", "reader", "publisher")]
    assert command(*ask, roles.prefix, "--json").document == {"applied": [], "roles": names}
    assert f"role {roles.prefix}_reader has its rights" in command(*ask, roles.prefix).out
    assert command(*ask, "x;").exit == Exit.CONFIG
    with closing(Asking(roles.owner)) as asking:
        found = asking("select rolcanlogin from pg_roles where rolname = any($1)", names)
    assert [row[0] for row in found] == [False] * 4
