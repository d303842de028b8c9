"""The relay and the scheduler export what they do as daemons do, and end whatever the collector does."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import asyncpg
import pytest

from acklast.errors import Exit
from acklast.telemetry import catalogue as of
from dev.otelcol import Collector
from harness import eventually
from harness.collector import http_else_soak, values_of
from harness.daemon import Daemon
from harness.scripted import DIRECTORY, LANE
from harness.site import Site
from harness.tap import QUICK

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
ENQUEUE: Final = f"""
select acklast.enqueue('{LANE}', 'promised', '{{}}',
    headers := '{{"traceparent": "00-{TRACE}-00f067aa0ba902b7-01"}}')
"""
SCHEDULE: Final = f"""
[schedules.hourly]
lane = "{LANE}"
cron = "0 * * * *"
sql = "select 7 as id"
key = "{{run}}:{{id}}"
"""
BEHIND: Final = f"""
insert into acklast.schedules (name, lane, expression, decided_until)
values ('hourly', '{LANE}', '', now() - interval '2 hours')
"""
COMMANDS: Final = ("relay", "scheduler")


@pytest.fixture
def receiver() -> str:
    """Neither reads deliveries."""
    return "bulk"


def service(place: Site, command: str, env: dict[str, str]) -> Daemon:
    return Daemon(place.config, command, env={DIRECTORY: str(place.directory), **env}, command=command)


def instances(text: str, pattern: str) -> set[str]:
    """Who exported the requests in which something stands."""
    requests = re.split(r"^(?=.*Resource\w+ #0$)", text, flags=re.MULTILINE)
    found = [re.search(r"service\.instance\.id: Str\(.*/(\w+)\)", one) for one in requests]
    return {who[1] for who, one in zip(found, requests, strict=True) if who and re.search(pattern, one)}


@http_else_soak
async def test_what_relay_and_scheduler_do_arrives_in_all_signals(
    new_site: NewSite, otelcol: Collector, ledger_dsn: str, protocol: str
) -> None:
    env = {**otelcol.env(protocol), **QUICK, "OTEL_LOGS_EXPORTER": "otlp"}
    env |= {"OTEL_METRIC_EXPORT_INTERVAL": "500"}
    async with new_site(more=SCHEDULE) as place:
        sql = await asyncpg.connect(ledger_dsn)
        await sql.execute(ENQUEUE)
        await sql.execute(BEHIND)
        await sql.close()
        with service(place, "scheduler", env) as scheduler, service(place, "relay", env) as relay:
            await eventually(
                lambda: 2.0 in values_of(otelcol.text(), of.PUBLISHED_TOTAL.name), 60, "2 are sent"
            )
            await eventually(lambda: 1.0 in values_of(otelcol.text(), of.FIRINGS.name), 60, "one has fired")
            await eventually(lambda: TRACE in otelcol.text(), 60, "the span of one that was sent")
            for one in (relay, scheduler):
                one.signal(signal.SIGTERM)
            for one in (relay, scheduler):
                assert await one.ended() == Exit.OK
                assert not one.said("telemetry.not_exported")
    text = otelcol.text()
    assert instances(text, r"Name *: send acklast\.v1\.in\n") == {"relay"}
    assert instances(text, rf"-> Name: {re.escape(of.PUBLISHED_TOTAL.name)}\n") == {"relay"}
    assert instances(text, rf"-> Name: {re.escape(of.FIRINGS.name)}\n") == {"scheduler"}
    for metric in (of.BUILD_INFO, of.DROPPED, of.EXPORTS_TOTAL, of.QUEUED):
        assert instances(text, rf"-> Name: {re.escape(metric.name)}\n") == set(COMMANDS)
    for command in COMMANDS:
        assert instances(text, rf"Body: Str\({command}\.ready\)") == {command}
        assert instances(text, rf"Body: Str\({command}\.stopped\)") == {command}, "the last line"
    assert of.IN_FLIGHT.name not in text


@pytest.fixture
def silent() -> Iterator[str]:
    """Takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("command", ["relay", pytest.param("scheduler", marks=pytest.mark.soak)])
async def test_a_silent_collector_holds_up_no_end(
    new_site: NewSite, silent: str, ledger_dsn: str, command: str
) -> None:
    env = {**QUICK, "OTEL_EXPORTER_OTLP_ENDPOINT": silent, "OTEL_LOGS_EXPORTER": "otlp"}
    env |= {"OTEL_EXPORTER_OTLP_TIMEOUT": "3600000", "OTEL_METRIC_EXPORT_INTERVAL": "100"}
    async with new_site(more=SCHEDULE) as place:
        with service(place, command, env) as one:
            await one.says(f"{command}.ready")
            assert await one.drained() == Exit.OK
            assert one.said(f"{command}.stopped")
