"""What serves many jobs is nobody's child, and each job its own: with handlers that are instrumented too."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from acklast.errors import Exit
from harness.instrumented import FILE
from harness.site import Site, scripted
from harness.tap import tap

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

JOBS: Final = 40


@pytest.fixture
def receiver() -> str:
    """One is enough: what is proved here is behind both."""
    return "bulk"


def theirs(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / FILE).read_text().splitlines()]


def headers_of(number: int) -> dict[str, str]:
    return {"traceparent": f"00-{number + 1:032x}-{number + 1:016x}-01", "baggage": f"tenant={number}"}


async def test_no_job_is_the_parent_of_a_flush_nor_of_another_job(new_site: NewSite) -> None:
    async with tap() as received, new_site(app="harness.instrumented:app", concurrency=4) as place:
        jobs = [scripted(f"k-{number}", "done", headers=headers_of(number)) for number in range(JOBS)]
        await place.publish(*jobs)
        with place.daemon(env=received.env(), fresh=True) as daemon:
            for number in range(JOBS):
                await received.settled(f"k-{number}")
            assert await daemon.drained() == Exit.OK
    spans = theirs(place.directory)
    for name in ("_flush", "_connect_one"):
        found = [span for span in spans if span["name"] == name]
        assert found, f"no {name} was seen"
        assert {span["parent"] for span in found} == {""}, name
    process = {span.attributes["acklast.key"]: span for span in received.spans if span.operation == "process"}
    handlers = {span["key"]: span for span in spans if span["name"] == "handler"}
    assert len(process) == len(handlers) == JOBS
    for number in range(JOBS):
        ours, span = process[f"k-{number}"], handlers[f"k-{number}"]
        assert ours.trace_id == span["trace"] == f"{number + 1:032x}"
        assert span["parent"] == ours.span_id
        assert span["traceparent"] == f"00-{ours.trace_id}-{ours.span_id}-01"
        assert span["tenant"] == str(number)


async def test_handlers_that_are_instrumented_go_on_in_the_publishers_trace_without_any_export(
    new_site: NewSite,
) -> None:
    async with new_site(app="harness.instrumented:app") as place:
        await place.publish(scripted("k-1", "done", headers=headers_of(0)), scripted("k-2", "done"))
        with place.daemon(fresh=True) as daemon:
            for key in ("k-1", "k-2"):
                await daemon.says("job.settled", key=key)
            assert await daemon.drained() == Exit.OK
    handlers = {span["key"]: span for span in theirs(place.directory) if span["name"] == "handler"}
    assert (handlers["k-1"]["trace"], handlers["k-1"]["parent"]) == (f"{1:032x}", f"{1:016x}")
    assert (handlers["k-2"]["parent"], handlers["k-2"]["traceparent"]) == ("", "")
