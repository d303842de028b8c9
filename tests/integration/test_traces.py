"""Traces of real daemons: one for each job, from its publisher to its downstream, whatever happens to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias

import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.publish import Job
from harness.downstream import downstream, says
from harness.scripted import LANE, TYPE
from harness.site import RUN, Site, scripted
from harness.tap import tap

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "b7ad6b7169203331"
SAMPLED: Final = {"traceparent": f"00-{TRACE}-{SPAN}-01"}


@pytest.fixture
def receiver() -> str:
    """One is enough: what is proved here is behind both."""
    return "bulk"


def operations(spans: list[Any]) -> list[str]:
    return [span.operation for span in spans]


async def test_a_job_is_in_its_publishers_trace(new_site: NewSite) -> None:
    async with tap() as received, new_site() as place:
        await place.publish(scripted("k-1", "done", headers=SAMPLED))
        with place.daemon(env=received.env()) as daemon:
            spans = await received.settled("k-1")
            assert await daemon.drained() == Exit.OK
    receive, process, settle = spans
    assert operations(spans) == ["receive", "process", "settle"]
    assert [span.kind for span in spans] == ["client", "consumer", "client"]
    assert {span.trace_id for span in spans} == {TRACE}
    assert (receive.parent_id, process.parent_id, settle.parent_id) == (SPAN, SPAN, process.span_id)
    assert receive.links == process.links == ((TRACE, SPAN),)
    assert process.name == f"process acklast.v1.{LANE}.work"
    assert (
        process.attributes.items()
        >= {
            "messaging.system": "rabbitmq",
            "messaging.operation.name": "process",
            "messaging.destination.name": f"acklast.v1.in:{LANE}:acklast.v1.{LANE}.work",
            "messaging.rabbitmq.destination.routing_key": LANE,
            "server.address": "127.0.0.1",
            "acklast.key": "k-1",
            "acklast.lane": LANE,
            "acklast.run": RUN,
            "acklast.attempt": 1,
            "acklast.outcome": "done",
        }.items()
    )
    assert settle.attributes["messaging.operation.name"] == "ack"
    assert settle.attributes["acklast.disposition"] == "complete"
    assert receive.start_ns <= receive.end_ns <= process.start_ns <= process.end_ns <= settle.end_ns
    assert not any(span.failed for span in spans)
    line = daemon.said("job.settled", key="k-1")[0]
    assert line["trace_id"] == TRACE


async def test_every_attempt_is_in_the_same_trace(new_site: NewSite) -> None:
    async with tap() as received, new_site(backoff_base_s=0.1, backoff_cap_s=0.1) as place:
        await place.publish(scripted("k-1", "transient", "done", headers=SAMPLED))
        with place.daemon(env=received.env()) as daemon:
            spans = await received.settled("k-1", times=2)
            assert await daemon.drained() == Exit.OK
    assert {span.trace_id for span in spans} == {TRACE}
    first, second = (span for span in spans if span.operation == "process")
    assert (first.attributes["acklast.attempt"], second.attributes["acklast.attempt"]) == (1, 2)
    assert (first.failed, first.attributes["error.type"]) == (True, "not_now")
    assert (second.failed, second.parent_id) == (False, SPAN)
    [send] = (span for span in spans if span.operation == "send")
    assert send.parent_id == first.span_id
    assert send.attributes["messaging.destination.name"] == f"acklast.v1.route:{LANE}.wait.1"


async def test_a_job_without_a_parent_is_in_one_trace_of_its_own(new_site: NewSite) -> None:
    async with tap() as received, new_site(backoff_base_s=0.1, backoff_cap_s=0.1) as place:
        await place.publish(scripted("k-1", "transient", "done"), scripted("k-2", "done"))
        with place.daemon(env=received.env()) as daemon:
            spans = await received.settled("k-1", times=2)
            others = await received.settled("k-2")
            assert await daemon.drained() == Exit.OK
    [trace] = {span.trace_id for span in spans}
    assert trace not in {span.trace_id for span in others}
    assert {span.parent_id for span in spans if span.operation in ("receive", "process")} == {""}


async def test_what_is_not_sampled_makes_no_span_and_is_handed_on(new_site: NewSite) -> None:
    unsampled = {"traceparent": f"00-{TRACE}-{SPAN}-00", "tracestate": "a=b", "baggage": "tenant=7"}
    async with tap() as received, downstream(says(200)) as api, new_site(http=f'url = "{api.url}/"') as place:
        await place.publish(Job.json(LANE, "k-1", {}, type=TYPE, headers=unsampled))
        await place.publish(Job.json(LANE, "k-2", {}, type=TYPE, headers=SAMPLED))
        with place.daemon(env=received.env()) as daemon:
            await place.reaches("k-1", State.DONE)
            await received.settled("k-2")
            assert await daemon.drained() == Exit.OK
    assert received.of("k-1") == []
    [headers] = [call.headers for call in api.calls if "baggage" in call.headers]
    version, trace, _, flags = headers["traceparent"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "00")
    assert (headers["tracestate"], headers["baggage"]) == ("a=b", "tenant=7")


async def test_the_downstream_call_is_a_child_and_the_downstreams_parent(new_site: NewSite) -> None:
    async with tap() as received, downstream(says(503)) as api:
        http = f'url = "{api.url}/secret-path?api_key=hidden"'
        async with new_site(http=http, max_attempts=1) as place:
            await place.publish(Job.json(LANE, "k-1", {}, type=TYPE, headers=SAMPLED))
            with place.daemon(env=received.env()) as daemon:
                spans = await received.settled("k-1")
                assert await daemon.drained() == Exit.OK
    [call] = (span for span in spans if span.name in ("GET", "POST"))
    [process] = (span for span in spans if span.operation == "process")
    assert (call.kind, call.parent_id) == ("client", process.span_id)
    assert call.attributes["http.response.status_code"] == 503
    assert (call.failed, call.attributes["error.type"]) == (True, "503")
    assert api.calls[0].headers["traceparent"] == f"00-{TRACE}-{call.span_id}-01"
    assert "hidden" not in str(spans)
    assert "secret-path" not in str(spans)


async def test_a_follow_up_is_in_the_trace_of_the_job_that_promised_it(new_site: NewSite) -> None:
    async with tap() as received, new_site() as place:
        promise = {"do": "enqueue", "key": "k-2", "then": ""}
        await place.publish(scripted("k-1", promise, headers=SAMPLED))
        with place.daemon(env=received.env()) as daemon:
            await place.reaches("k-2", State.DONE)
            await received.settled("k-2", times=2)
            # The relay tells of what it published once that is committed.
            await received.until(lambda: "send" in operations(received.of("k-2")), "the relay's span")
            assert await daemon.drained() == Exit.OK
    spans = received.of("k-2")
    assert {span.trace_id for span in spans} == {TRACE}
    first, second = (span for span in spans if span.operation == "process")
    assert (first.attributes["acklast.key"], second.attributes["acklast.key"]) == ("k-1", "k-2")
    [send] = (span for span in spans if span.operation == "send")
    assert send.attributes["messaging.destination.name"] == f"acklast.v1.in:{LANE}"
    assert send.parent_id == second.parent_id == first.span_id


async def test_an_enqueued_job_begins_its_trace_at_its_publish(
    new_site: NewSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tap() as received, new_site() as place:
        for name, value in received.env().items():
            monkeypatch.setenv(name, value)
        rows = place.directory / "rows.jsonl"
        rows.write_text(
            '{"id": "k-1", "steps": [{"do": "done"}]}\n{"id": "k-2", "steps": [{"do": "done"}]}\n'
        )
        arguments = ("--run", RUN, "--key", "{id}", "--type", TYPE)
        await place.command("enqueue", LANE, str(rows), *arguments)
        with place.daemon(env=received.env()) as daemon:
            first, second = await received.settled("k-1"), await received.settled("k-2")
            assert await daemon.drained() == Exit.OK
    assert operations(first) == ["send", "receive", "process", "settle"]
    send, receive, process, _ = first
    assert (send.kind, send.parent_id) == ("producer", "")
    assert receive.parent_id == process.parent_id == send.span_id
    assert {span.trace_id for span in first}.isdisjoint(span.trace_id for span in second)
