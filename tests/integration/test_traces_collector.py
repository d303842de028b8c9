"""A real collector: by both protocols, from a publisher in another language to the downstream, and away."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from aiohttp import web

from acklast.errors import Exit
from acklast.ledger.api import State
from dev.otelcol import Collector
from harness import eventually
from harness.collector import both_protocols, grpc_else_soak
from harness.downstream import downstream
from harness.redrives import begin, sql_of
from harness.scripted import LANE, TYPE
from harness.site import Site, scripted
from harness.snippets import missing, run
from harness.tap import QUICK

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN: Final = "00f067aa0ba902b7"
QUICKLY: Final = {**QUICK, "OTEL_LOGS_EXPORTER": "otlp", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
PROGRAM: Final = """\
// trace.mjs
import amqp from 'amqplib';
const connection = await amqp.connect(process.env.AMQP_URL);
const channel = await connection.createConfirmChannel();
const headers = { 'job-key': 'k-1', traceparent: process.env.TRACEPARENT, tracestate: 'vendor=1' };
channel.publish('acklast.v1.in', process.env.LANE, Buffer.from('{}'), { headers, type: process.env.TYPE });
await channel.waitForConfirms();
await connection.close();
"""
_SPAN: Final = re.compile(
    r"Trace ID\s*: (?P<trace>\w+)\s+Parent ID\s*: (?P<parent>\w*)\s+ID\s*: (?P<id>\w+)"
    r"\s+Name\s*: (?P<name>.+)"
)


@pytest.fixture
def receiver() -> str:
    """One is enough: what is proved here is behind both."""
    return "bulk"


def spans_in(text: str) -> list[dict[str, str]]:
    return [match.groupdict() for match in _SPAN.finditer(text)]


@both_protocols
async def test_a_trace_goes_from_a_foreign_publisher_through_retry_and_redrive_to_the_downstream(
    protocol: str, otelcol: Collector, new_site: NewSite, ledger_dsn: str, tmp_path: Path
) -> None:
    if lacks := missing("trace.mjs"):
        pytest.skip(f"no {lacks}")
    answers = iter((503, 404, 200))

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=next(answers))

    async with downstream(answer) as api:
        http = f'url = "{api.url}/"'
        async with new_site(http=http, backoff_base_s=0.1, backoff_cap_s=0.1) as place:
            env = {"AMQP_URL": place.broker_url, "LANE": LANE, "TYPE": TYPE}
            ended = run({"trace.mjs": PROGRAM}, tmp_path, env | {"TRACEPARENT": f"00-{TRACE}-{SPAN}-01"})
            assert ended["trace.mjs"].code == 0, ended
            with place.daemon(env={**otelcol.env(protocol), **QUICKLY}) as daemon:
                await place.reaches("k-1", State.DEAD)
                await begin(sql_of(ledger_dsn), LANE)
                await place.reaches("k-1", State.DONE)
                assert await daemon.drained() == Exit.OK
    text = otelcol.text()
    spans = spans_in(text)
    assert {span["trace"] for span in spans} == {TRACE}
    calls = [span for span in spans if span["name"] in ("GET", "POST")]
    processes = [span for span in spans if span["name"].startswith("process ")]
    assert {span["parent"] for span in processes} == {SPAN}
    assert sorted(span["parent"] for span in calls) == sorted(span["id"] for span in processes)
    told = [call.headers["traceparent"] for call in api.calls]
    assert sorted(told) == sorted(f"00-{TRACE}-{span['id']}-01" for span in calls)
    assert len(calls) == len(processes) == 3
    sends = [span for span in spans if span["name"] == "send acklast.v1.route"]
    assert len(sends) == 2, "one for the retry, one for the redrive"
    assert re.search(r"Body: Str\(job\.settled\)(?:(?!LogRecord #).)*?Trace ID: " + TRACE, text, re.DOTALL)
    assert "-> Name: acklast.deliveries" in text
    assert "service.name: Str(acklast)" in text


@pytest.fixture
def hung(otelcol: Collector) -> Iterator[Collector]:
    otelcol.pause()
    yield otelcol
    otelcol.resume()


@grpc_else_soak
async def test_a_hung_collector_holds_up_no_job_and_no_drain(
    protocol: str, hung: Collector, new_site: NewSite
) -> None:
    small = {"OTEL_BSP_MAX_QUEUE_SIZE": "20", "OTEL_EXPORTER_OTLP_TIMEOUT": "300"}
    async with new_site(drain_s=5) as place:
        await place.publish(*(scripted(f"k-{number}", "done") for number in range(200)))
        with place.daemon(env={**hung.env(protocol), **QUICKLY, **small}) as daemon:
            for number in range(200):
                await place.reaches(f"k-{number}", State.DONE)
            said = await daemon.says("telemetry.not_exported", signal="traces")
            assert said["level"] == "warning"
            daemon.signal(signal.SIGTERM)
            assert await daemon.ended() == Exit.OK
        receipt = daemon.said("drain.receipt")[0]
        assert (receipt["cut"], receipt["left"], receipt["unknown"]) == (False, 0, 0)
        assert len(daemon.said("telemetry.not_exported", signal="traces")) == 1, "once for the outage"
        assert "Traceback" not in daemon.text()


@grpc_else_soak
async def test_a_collector_that_comes_back_is_said_with_what_was_lost(
    protocol: str, otelcol: Collector, new_site: NewSite
) -> None:
    env = {**otelcol.env(protocol), **QUICK, "OTEL_EXPORTER_OTLP_TIMEOUT": "300"}
    otelcol.kill()
    async with new_site() as place:
        with place.daemon(env=env) as daemon:
            await place.publish(scripted("k-1", "done"))
            await daemon.says("telemetry.not_exported", signal="traces")
            otelcol.start()

            async def exported() -> bool:
                await place.publish(scripted(f"more-{len(daemon.log())}", "done"))
                return bool(daemon.said("telemetry.exporting", signal="traces"))

            await eventually(exported, 60, "the export goes on")
            assert daemon.said("telemetry.exporting", signal="traces")[0]["lost"] >= 3
            assert await daemon.drained() == Exit.OK
