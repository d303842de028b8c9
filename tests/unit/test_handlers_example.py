"""The example's handler against its stand-in API, a real process, and its file of rows."""

from __future__ import annotations

import asyncio
import csv
import importlib.util
import json
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import pytest

from acklast import Context
from acklast.config import load
from acklast.handlers.app import App, JobType
from acklast.handlers.attempt import Reconciled, reconcile_attempt
from acklast.outcome import Done, Outcome, Permanent, RateLimited, Transient, Unknown
from acklast_topology.contract import Envelope
from harness.jobs import Trial, envelope

EXAMPLE = Path(__file__).parents[2] / "examples" / "property-cleanup"
LANE = "cleanup"


def module(name: str) -> ModuleType:
    """A module of the example, loaded anew."""
    spec = importlib.util.spec_from_file_location(f"property_cleanup_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded  # pydantic looks the annotations' names up there
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def handlers() -> Iterator[ModuleType]:
    yield module("handlers")
    del sys.modules["property_cleanup_handlers"]


@pytest.fixture
async def job(handlers: ModuleType) -> AsyncIterator[JobType]:
    app: App = handlers.app
    found = app.find(LANE, None)
    assert found is not None
    yield found
    await app.stop()


@asynccontextmanager
async def property_api(monkeypatch: pytest.MonkeyPatch, *options: str) -> AsyncIterator[str]:
    """The stand-in, running, where the handler looks for it."""
    program = str(EXAMPLE / "property_api.py")
    arguments = ("--port", "0", "--latency-ms", "0", *options)
    process = await asyncio.create_subprocess_exec(
        sys.executable, program, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        monkeypatch.setenv("PROPERTY_API_URL", ready["url"])
        yield ready["report"]
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def reported(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        found: dict[str, Any] = await response.json()
        return found


def order(number: int = 1, **changed: Any) -> Envelope:
    return envelope(json.dumps(module("make_rows").sound(number) | changed).encode())


async def ordered(job: JobType, message: Envelope | None = None, key: str = "r-1:P-00001") -> Outcome:
    return await Trial(job, message or order(), context=Context(key, LANE)).outcome()


# --- the handler and the API ---------------------------------------------------------------------------


async def test_an_order_is_placed_once_per_attempt_with_its_key(
    job: JobType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with property_api(monkeypatch) as report:
        assert await ordered(job) == Done({"receipt": 1})
        assert await ordered(job, key='r-1:"é') == Done({"receipt": 2})
        assert await ordered(job) == Done({"receipt": 3})
        account = await reported(report)
    first = account["keys"]["r-1:P-00001"]
    assert (first["property_id"], first["requests"], first["effects"]) == ("P-00001", 2, 2)
    assert (first["said_key"], first["statuses"], len(first["at"])) == (2, [201, 201], 2)
    assert account["keys"]['r-1:"é']["effects"] == 1
    assert account["totals"] == {
        "requests": 3,
        "requests_with_key": 3,
        "effects": 3,
        "keys_with_effect": 2,
        "keys_with_repeats": 1,
        "rate_limited": 0,
        "failed": 0,
        "refused": 0,
    }


async def test_over_the_quota_the_handler_passes_on_how_long_to_wait(
    job: JobType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with property_api(monkeypatch, "--quota", "2", "--period-s", "50") as report:
        outcomes = [await ordered(job) for _ in range(3)]
        account = await reported(report)
    assert outcomes[:2] == [Done({"receipt": 1}), Done({"receipt": 2})]
    assert isinstance(outcomes[2], RateLimited)
    assert outcomes[2].retry_after_s is not None
    assert 1 <= outcomes[2].retry_after_s <= 50
    assert account["window"] == {"quota": 2, "period_s": 50, "worst": 3}
    assert (account["totals"]["rate_limited"], account["totals"]["effects"]) == (1, 2)


async def test_every_so_many_calls_fail_before_their_effect(
    job: JobType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with property_api(monkeypatch, "--fail-every", "2") as report:
        outcomes = [await ordered(job) for _ in range(3)]
        account = await reported(report)
    assert outcomes == [Done({"receipt": 1}), Transient("http_500"), Done({"receipt": 2})]
    assert (account["totals"]["failed"], account["totals"]["effects"]) == (1, 2)


async def test_a_property_under_legal_hold_is_refused_for_good(
    job: JobType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with property_api(monkeypatch) as report:
        assert await ordered(job, order(90_001)) == Permanent("order_refused")
        account = await reported(report)
    assert (account["totals"]["refused"], account["totals"]["effects"]) == (1, 0)


async def test_reconcile_finds_the_order_of_an_earlier_attempt(
    job: JobType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked() -> Reconciled:
        return await reconcile_attempt(job, order(), Context("r-1:P-00001", LANE), timeout_s=10)

    async with property_api(monkeypatch):
        assert await asked() == Reconciled(False)
        await ordered(job)
        assert await asked() == Reconciled(True, {"receipt": 1})
    found = await asked()
    assert found.happened is None
    assert found.reason.startswith("exception:Client")


async def test_an_api_that_cannot_be_reached_is_tried_again(
    job: JobType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound and not listening: the connection is refused
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PROPERTY_API_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert await ordered(job) == Transient("unreachable")


async def test_an_api_that_hangs_up_after_the_request_leaves_it_unknown(
    job: JobType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        monkeypatch.setenv("PROPERTY_API_URL", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert await ordered(job) == Unknown("no_answer")


@pytest.mark.parametrize(
    ("status", "name", "reason"),
    [
        (404, "Permanent", "property_unknown"),
        (410, "Permanent", "property_gone"),
        (400, "Permanent", "http_400"),
        (401, "Transient", "http_401"),
        (502, "Transient", "http_502"),
        (429, "RateLimited", "rate_limited"),
    ],
)
def test_a_status_says_what_it_means_for_the_job(
    handlers: ModuleType, status: int, name: str, reason: str
) -> None:
    error = handlers.refusal(status, "7")
    assert (type(error).__name__, error.reason) == (name, reason)
    assert getattr(error, "retry_after", "7") == "7"
    assert handlers.refusal(201, None) is None


# --- the rows ------------------------------------------------------------------------------------------


def test_the_file_is_what_its_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = module("make_rows")
    written = script.FILE.read_bytes()
    monkeypatch.setattr(script, "FILE", tmp_path / "rows.csv")
    script.main()
    assert (tmp_path / "rows.csv").read_bytes() == written


def test_the_rows_are_of_four_kinds(handlers: ModuleType) -> None:
    with (EXAMPLE / "properties.csv").open(newline="", encoding="utf-8") as file:
        rows = [tuple(row.items()) for row in csv.DictReader(file)]
    unique = set(rows)
    kinds = Counter(_kind(handlers, dict(row)) for row in unique)
    assert len(rows) == 2000
    assert max(Counter(rows).values()) == 2
    assert kinds == {"sound": 1885, "refused": 10, "invalid": 5}
    assert len({dict(row)["property_id"] for row in rows}) == len(unique) == 1900


def _kind(handlers: ModuleType, row: dict[str, Any]) -> str:
    try:
        cleanup = handlers.Cleanup.model_validate_json(json.dumps(row))
    except ValueError:
        return "invalid"
    return "refused" if cleanup.property_id >= "P-90000" else "sound"


async def test_each_defect_is_told_by_its_field(job: JobType) -> None:
    details = []
    for defect in module("make_rows")._DEFECTS:
        outcome = await ordered(job, order(**defect))
        assert isinstance(outcome, Permanent)
        assert outcome.reason == "invalid_payload"
        details.append(outcome.detail)
    assert details == [
        "rooms: greater_than_equal",
        "task: literal_error",
        "vacated_on: date_from_datetime_parsing",
        "payload: value_error",
        "budget_cents: int_parsing",
    ]


def test_the_configuration_fits_the_handlers(handlers: ModuleType) -> None:
    config = load(EXAMPLE / "acklast.toml", {"HOME": "/home/jobs"})
    assert set(config.lanes) == handlers.app.lanes()
    assert config.lanes[LANE].on_unknown == "reconcile"
    assert all(job.reconcile for job in handlers.app.jobs())
