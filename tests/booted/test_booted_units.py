"""The units under a real systemd: what it starts, ends and starts again, and what it lets a handler do."""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import Final

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.telemetry import catalogue as of
from booted.conftest import Host
from dev.postgres import Cluster
from dev.rabbitmq import Node
from dev.stack import BrokerServer
from harness import eventually
from harness.probing import probe
from harness.scraping import scrape
from harness.secure import secured

WORK: Final = "acklast.v1.work.work"


async def test_it_is_started_when_it_consumes_and_not_before(host: Host, broker_node: Node) -> None:
    broker_node.pause()
    try:
        host.systemctl("start", "--no-block", "acklast")
        await eventually(lambda: not host.is_(ActiveState="inactive"))
        await eventually(lambda: int(host.shown()["NRestarts"]) >= 1, 60, "it is tried again")
        assert host.shown()["ActiveState"] == "activating"
    finally:
        broker_node.resume()
    await eventually(lambda: host.is_(ActiveState="active"), 60)
    assert host.shown()["StatusText"] == "consuming 1 lanes"
    async with await host.broker.connect() as connection, connection.channel() as channel:
        queue = await channel.declare_queue(WORK, passive=True)
        assert queue.declaration_result.consumer_count == 1
    await host.publish("first")
    await host.done("first")


async def test_the_sandbox_holds_and_what_a_handler_needs_is_there(host: Host) -> None:
    host.start()
    await host.publish("look", "look.v1")
    seen = (await host.done("look")).result
    user = int(host.machine.must("id", "-u", "acklast"))
    assert seen == {
        "written": [],
        "secret": "PermissionError",
        "state": "",
        "tmp": "",
        "processes": 1,
        "resolved": True,
        "authorities": True,
        "user": user,
        "thread": True,
    }
    assert (host.state / "made").exists()
    assert not (host.machine.root / "tmp/acklast-made").exists()
    environment = host.machine.must("systemctl", "show", "acklast", "-p", "Environment")
    assert "amqp" not in environment


async def test_tls_with_keys_that_are_credentials(host: Host, broker_server: BrokerServer) -> None:
    if broker_server.node is None or broker_server.node.tls is None:
        pytest.skip("the broker is given by ACKLAST_BROKER_URL: whose certificates it takes is not known")
    with secured(host.broker, broker_server.node.tls) as secure:
        host.configure(broker_url=secure.url)
        keys = {"ca": secure.tls.authority.cert, "cert": secure.pair.cert, "key": secure.pair.key}
        for name, path in keys.items():
            shutil.copy(path, host.etc / f"broker-{name}.pem")
            (host.etc / f"broker-{name}.pem").chmod(0o600)
        config = host.etc / "acklast.toml"
        named = "".join(f'{name}_file = "broker-{name}"\n' for name in keys)
        config.write_text(config.read_text().replace("[ledger]", f'{named}auth = "external"\n[ledger]'))
        host.drop_in(
            "\n".join(f"LoadCredential=broker-{name}:/etc/acklast/broker-{name}.pem" for name in keys)
        )
        host.start()
        await host.publish("by-tls")
        await host.done("by-tls")
        host.systemctl("stop", "acklast")


async def test_a_loop_that_stands_still_is_killed_and_its_job_recovered_at_once(host: Host) -> None:
    host.drop_in("WatchdogSec=3\nRestartSec=1")
    host.start()
    await host.publish("rude", block=True)
    await host.started("rude")
    view = await host.done("rude")
    assert (view.ambiguous, view.result) == (True, {"again": True, "attempt": 2})
    assert host.shown()["NRestarts"] == "1"
    log = host.machine.journal("acklast.service")
    assert any("Watchdog timeout" in str(entry["MESSAGE"]) for entry in log)
    assert any("handlers.py" in str(entry["MESSAGE"]) for entry in log), "the log says where it stood"


async def passed(seconds: float) -> None:
    """Wait until the manager has had so long to do what it should not."""
    began = time.monotonic()
    await eventually(lambda: time.monotonic() - began > seconds, 2 * seconds, "time passes")


async def test_a_long_handler_and_outages_are_left_alone_by_the_watchdog(
    host: Host, broker_node: Node, ledger_cluster: Cluster
) -> None:
    config = host.etc / "acklast.toml"
    config.write_text(config.read_text().replace("lease_s = 600", "lease_s = 15"))  # who renews finds it away
    host.drop_in("WatchdogSec=2")
    host.start()
    await host.publish("long", wait="go")
    await host.started("long")
    broker_node.pause()
    ledger_cluster.pause()
    try:
        await passed(30)
        await eventually(lambda: host.shown()["StatusText"].endswith("; nothing starts"))
        ledger_cluster.resume()
        await eventually(lambda: "consuming 0 of 1 lanes; no broker" in host.shown()["StatusText"])
    finally:
        ledger_cluster.resume()
        broker_node.resume()
    host.open_gate("go")
    await host.done("long")
    await eventually(lambda: host.shown()["StatusText"] == "consuming 1 lanes")
    assert host.is_(ActiveState="active", NRestarts="0")
    assert host.said("daemon.stuck") == []


async def test_a_drain_that_gets_on_outlasts_the_stop_timeout(host: Host) -> None:
    host.drop_in("TimeoutStopSec=4")
    host.start()
    await host.publish("long", wait="go")
    await host.started("long")
    stopping = asyncio.create_task(asyncio.to_thread(host.systemctl, "stop", "acklast"))
    await eventually(lambda: "draining: 1 running" in host.shown()["StatusText"])
    await passed(25)
    assert host.is_(ActiveState="deactivating")
    host.open_gate("go")
    assert await stopping == 0
    assert host.is_(ActiveState="inactive", Result="success")
    await host.done("long")
    log = [entry for entry in host.machine.journal("acklast.service") if entry.get("_COMM") != "systemd"]
    receipt = log[-1]
    assert receipt["ACKLAST_EVENT"] == "drain.receipt"
    told = [receipt[f"ACKLAST_{name}"] for name in ("COMPLETED", "LEFT", "CUT")]
    assert told == ["1", "0", "false"]
    assert float(receipt["ACKLAST_SECONDS"]) > 20


async def test_a_drain_that_stands_still_gets_no_more_time(host: Host) -> None:
    host.drop_in("TimeoutStopSec=4\nWatchdogSec=0")
    host.start()
    await host.publish("rude", block=True)
    await host.started("rude")
    began = time.monotonic()
    await asyncio.to_thread(host.systemctl, "stop", "acklast")
    assert 3 < time.monotonic() - began < 40
    assert host.is_(Result="timeout")


async def test_a_restart_after_a_kill_recovers_its_own_claims_at_once(host: Host) -> None:
    host.drop_in("RestartSec=1")
    host.start()
    await host.publish("held", wait="go")
    await host.started("held")
    host.open_gate("go-on")
    assert host.systemctl("kill", "-s", "KILL", "acklast") == 0
    await eventually(lambda: host.is_(ActiveState="active", NRestarts="1"), 60)
    host.open_gate("go")
    view = await host.done("held", 60)  # a tenth of the lease
    assert (view.attempts, view.ambiguous) == (2, True)


@pytest.mark.parametrize("line", ["nonsense = 1", "[lanes.other]\nbudget = 'none such'"])
async def test_a_bad_configuration_is_not_tried_again(host: Host, line: str) -> None:
    host.drop_in("RestartSec=0")
    config = host.etc / "acklast.toml"
    config.write_text(f"{config.read_text()}\n{line}\n")
    assert host.systemctl("start", "acklast") != 0
    await eventually(lambda: host.is_(ActiveState="failed"))
    assert host.is_(ExecMainStatus=str(int(Exit.CONFIG)), NRestarts="0")


async def test_a_reload_is_followed_and_a_bad_one_changes_nothing(host: Host) -> None:
    host.start()
    main, config = host.shown("acklast.service")["MainPID"], host.etc / "acklast.toml"
    good = config.read_text().replace("concurrency = 2", "concurrency = 3")
    config.write_text(good)
    host.machine.must("systemctl", "reload", "acklast")
    [told] = await eventually(lambda: host.said("config.reloaded"), what="the new file is followed")
    assert "lanes.work.concurrency" in str(told["ACKLAST_CHANGED"])
    config.write_text(good.replace("concurrency = 3", "concurrency = 0"))
    host.machine.must("systemctl", "reload", "acklast")
    await eventually(lambda: "not reloaded" in host.shown("acklast.service")["StatusText"])
    assert host.is_(ActiveState="active", SubState="running", MainPID=main, NRestarts="0")


async def test_the_timer_has_expired_rows_removed(host: Host, ledger_dsn: str) -> None:
    soon = "OnCalendar=\nOnCalendar=*:*:0/2\nRandomizedDelaySec=0\nAccuracySec=100ms"
    host.drop_in(soon, "acklast-prune.timer")
    host.start("acklast-prune.timer")

    async def pruned() -> int:
        connection = await asyncpg.connect(ledger_dsn)
        try:
            query = "SELECT count(*) FROM acklast.audit WHERE action = 'prune.ended' AND actor = $1"
            return int(await connection.fetchval(query, "acklast-prune.timer"))
        finally:
            await connection.close()

    await eventually(pruned, 60, "a prune is in the audit")
    assert host.is_("acklast-prune.service", Result="success")


async def test_relay_and_scheduler_start_feed_their_watchdogs_and_stop(host: Host) -> None:
    config = host.etc / "acklast.toml"
    schedule = """
[schedules.daily]
lane = "work"
cron = "0 3 * * *"
sql = "select 1 as id"
key = "{run}:{id}"
type = "step.v1"
"""
    health = '[health]\nrelay_listen = "unix:health.sock"\nscheduler_listen = "unix:health.sock"\n'
    config.write_text(config.read_text() + schedule + health)
    for unit in ("acklast-relay.service", "acklast-scheduler.service"):
        host.drop_in("WatchdogSec=2", unit)
        host.start(unit)
    await passed(8)
    for unit in ("acklast-relay.service", "acklast-scheduler.service"):
        assert host.is_(unit, ActiveState="active", NRestarts="0")
        socket = host.machine.root / "var/lib" / unit.removesuffix(".service") / "health.sock"
        assert (await probe(socket, "/livez"))[0] == 200
        assert (await scrape(socket)).has(of.BUILD_INFO)
        assert host.systemctl("stop", unit) == 0
        assert host.is_(unit, ActiveState="inactive", Result="success")


async def test_an_instance_has_a_configuration_a_name_and_a_state_of_its_own(host: Host) -> None:
    (host.etc / "acklast.toml").rename(host.etc / "mail.toml")
    host.start("acklast@mail.service")
    assert (host.state / "mail/mail.lock").exists()
    assert host.shown("acklast@mail.service")["StatusText"] == "consuming 1 lanes"


@pytest.mark.parametrize("cut", [False, True], ids=["all finished", "cut"])
async def test_one_that_is_drained_from_afar_stays_away_until_it_is_started(host: Host, cut: bool) -> None:
    host.drop_in("RestartSec=0")
    if cut:
        config = host.etc / "acklast.toml"
        config.write_text(config.read_text().replace("deadline_s = 60", "deadline_s = 1"))
    host.start()
    await host.publish("long", wait="go")
    await host.started("long")
    [worker] = host.acklast("workers")["workers"]
    host.acklast("workers", "drain", worker["worker"], "--why", "upgrade")
    if not cut:
        await eventually(lambda: "draining: 1 running" in host.shown()["StatusText"])
        host.open_gate("go")
    await eventually(lambda: host.is_(ActiveState="inactive"), 60)
    await passed(5)
    assert host.is_(ActiveState="inactive", Result="success", NRestarts="0")
    [receipt] = host.said("drain.receipt")
    assert receipt["ACKLAST_CUT"] == str(cut).lower()
    [ended] = host.acklast("workers", "--all")["workers"]
    assert (ended["state"], ended["drain_reason"]) == ("ended", "upgrade")
    host.open_gate("go")
    host.start()
    await host.done("long")
    [again] = host.acklast("workers")["workers"]
    assert (again["state"], again["drain_asked_at"]) == ("live", None)
