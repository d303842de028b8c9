"""The worker for tests of handlers: what it shows of right ones, of wrong ones, and of each fault."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

import acklast.delivery
from acklast import App, Context, Interrupted, Permanent, RateLimited, Transient, Unknown, faults
from acklast.errors import ConfigError
from acklast.faults import Point
from acklast.ledger.memory import MemoryLedger
from acklast.testing import (
    EPOCH,
    Crash,
    Disconnect,
    Drain,
    Duplicate,
    Freeze,
    Hang,
    Heir,
    LedgerAway,
    Lost,
    NotVirtual,
    Stuck,
    TestWorker,
    Wait,
)
from acklast_topology import Job
from simulation.mutation import Mutation

LANE = "mail"


class Order(BaseModel):
    rooms: int


class Mail:
    """A downstream that knows no keys: each call is an effect."""

    def __init__(self) -> None:
        self.worker: TestWorker
        self.app = App()
        self.app.job("mail.v1", lane=LANE, reconcile=self.was_sent)(self.send)
        self.seconds = 0.0
        self.knows_keys = False

    async def send(self, payload: dict[str, Any], ctx: Context) -> str:
        await asyncio.wait_for(asyncio.Event().wait() if self.seconds < 0 else self._take_time(), None)
        sent = self.worker.job(LANE, ctx.key).effects
        if not (self.knows_keys and sent):
            self.worker.effect(ctx.key, "sent")
        return "sent"

    async def _take_time(self) -> None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        loop.call_later(self.seconds, over.set)
        await over.wait()

    async def was_sent(self, payload: dict[str, Any], ctx: Context) -> bool:
        return bool(self.worker.job(LANE, ctx.key).effects)

    @contextmanager
    def at(self, **options: Any) -> Iterator[TestWorker]:
        with TestWorker(self.app, **options) as self.worker:
            yield self.worker


@pytest.fixture
def mail() -> Mail:
    return Mail()


HOLD = {LANE: {"on_unknown": "hold"}}
RECONCILE = {LANE: {"on_unknown": "reconcile"}}


# --- without faults -----------------------------------------------------------------------------------


def test_a_job_is_done_and_tells_how(mail: Mail) -> None:
    with mail.at() as worker:
        job = worker.publish(LANE, {"to": "a"}, key="k", run="r-1")
        assert (job.state, worker.events[-1].name) == ("queued", "began")
        worker.run_until_idle()
        job.assert_state("done", attempts=1)
        job.assert_events("published", "started", "effect", "returned", "recorded", "settled")
        job.assert_one_effect()
        assert (job.result, job.view.run, job.waits) == ("sent", "r-1", [])
        worker.assert_states(done=1)


def test_a_retry_after_hours_takes_no_time_and_sees_the_clock(mail: Mail) -> None:
    seen: list[datetime] = []
    app = App()

    @app.job("late.v1", lane="late")
    async def late(payload: Any, ctx: Context) -> None:
        seen.append(ctx.now())
        if len(seen) == 1:
            raise Transient("not_now")
        async with asyncio.timeout(3600):
            await asyncio.Event().wait()

    began = time.monotonic()
    lane = {"backoff_base_s": 21_600.0, "backoff_cap_s": 21_600.0, "max_attempts": 2, "timeout_s": 7200.0}
    with TestWorker(app, lanes={"late": {**lane, "keep_done_s": 1e6}}) as worker:
        job = worker.publish("late")
        worker.run_until_idle()
        [wait] = job.waits
        assert seen[0] == EPOCH
        assert seen[1] - seen[0] >= timedelta(seconds=wait.seconds)
        job.assert_state("dead", attempts=2, reason="timeout")
        assert worker.now == seen[1] + timedelta(hours=1)
    assert time.monotonic() - began < 60


def test_a_deadline_and_a_time_before_which_nothing_starts(mail: Mail) -> None:
    with mail.at() as worker:
        late = worker.publish(LANE, key="late", deadline=EPOCH - timedelta(seconds=1))
        early = worker.publish(LANE, key="early", not_before=EPOCH + timedelta(minutes=7))
        worker.run_until_idle()
        late.assert_state("dead", reason="deadline_exceeded")
        early.assert_state("done")
        assert early.starts[0].at_s == pytest.approx(420, abs=1.1)


def test_a_payload_that_does_not_fit_is_a_dead_letter() -> None:
    app = App()

    @app.job("order.v1", lane="orders")
    async def order(payload: Order) -> None: ...

    with TestWorker(app) as worker:
        job = worker.publish("orders", {"rooms": "many"})
        other = worker.publish("orders", b"\xff", type="order.v1")
        worker.run_until_idle()
        for one in (job, other):
            one.assert_state("dead", reason="invalid_payload")
            assert one.starts == []
        assert job.letters[0].reason == "invalid_payload"


def test_follow_up_jobs_are_published_when_their_maker_completes() -> None:
    app = App()

    @app.job("first.v1", lane="first")
    async def first(payload: Any, ctx: Context) -> None:
        ctx.enqueue(Job.json("second", f"{ctx.key}:2", {}))
        ctx.enqueue(Job.json("elsewhere", f"{ctx.key}:3", {}))

    @app.job("second.v1", lane="second")
    async def second(payload: Any) -> None: ...

    with TestWorker(app) as worker:
        worker.fault("first", Lost(Transient("not_now")))
        worker.publish("first", key="a")
        worker.run_until_idle()
        worker.job("second", "a:2").assert_state("done")
        assert [job.lane for job in worker.enqueued] == ["second", "elsewhere"]
        worker.assert_states(done=2)


def test_what_a_transaction_yields_is_the_tests_own() -> None:
    app, statements = App(), []

    class Connection:
        async def execute(self, statement: str) -> None:
            statements.append(statement)

    @app.job("book.v1", lane="book")
    async def book(payload: Any, ctx: Context) -> None:
        async with ctx.transaction({"booked": True}) as connection:
            await connection.execute("INSERT")

    with TestWorker(app, transaction=Connection) as worker:
        worker.fault("book", Crash("effect"))
        job = worker.publish("book")
        worker.run_until_idle()
        job.assert_state("done", attempts=1)
        assert (job.result, statements) == ({"booked": True}, ["INSERT"])


def test_a_quota_is_kept_and_a_pause_is_everybodys(mail: Mail) -> None:
    lanes, budgets = {LANE: {"budget": "api"}}, {"api": {"quota": "4 per 10 s"}}
    with mail.at(lanes=lanes, budgets=budgets, workers=2) as worker:
        for number in range(9):
            worker.publish(LANE, key=str(number))
        worker.fault(LANE, RateLimited(60), key="0")
        worker.run_until_idle()
        worker.assert_states(done=9)
        starts = [event.at_s for event in worker.events if event.name == "started"]
        assert [at for at in starts if 0 < at < 60] == []
        assert all(starts[n + 4] - starts[n] >= 9.9 for n in range(4, len(starts) - 4))


# --- faults -------------------------------------------------------------------------------------------


def test_a_429_waits_as_long_as_it_says_and_spends_no_attempt(mail: Mail) -> None:
    with mail.at() as worker:
        worker.fault(LANE, RateLimited(30), times=2)
        job = worker.publish(LANE)
        worker.run_until_idle()
        job.assert_state("done", attempts=1)
        assert job.waits == [Wait(30.0, "rate_limited", spends=False)] * 2
        assert [start.at_s for start in job.starts] == [0, 30, 60]


def test_a_retry_after_that_is_a_date_is_read_by_the_virtual_clock(mail: Mail) -> None:
    with mail.at() as worker:
        worker.fault(LANE, RateLimited("Mon, 05 Jan 2026 09:05:00 GMT"))
        job = worker.publish(LANE)
        worker.run_until_idle()
        assert [wait.seconds for wait in job.waits] == [300]


def test_a_handler_that_repeats_its_effect_after_a_crash_is_shown_as_such(mail: Mail) -> None:
    with mail.at() as worker:
        worker.fault(LANE, Crash())
        job = worker.publish(LANE, key="k")
        worker.run_until_idle()
        job.assert_state("done", attempts=2)
        assert [start.fields["ambiguous"] for start in job.starts] == [False, True]
        with pytest.raises(AssertionError) as wrong:
            job.assert_one_effect()
    lines = str(wrong.value).splitlines()
    assert lines[0] == "job mail/k had 2 effects, and not 1: sent, sent"
    assert [line.split(maxsplit=2)[2] for line in lines if "effect:" in line or "dead" in line] == [
        "effect: sent",
        "the daemon is dead",
        "effect: sent",
    ]


@pytest.mark.parametrize(
    ("knows_keys", "lanes", "state"),
    [(True, {}, "done"), (False, RECONCILE, "done"), (False, HOLD, "unresolved")],
)
def test_after_a_crash_keys_a_reconcile_or_a_person_keep_the_effect_single(
    mail: Mail, knows_keys: bool, lanes: dict[str, Any], state: str
) -> None:
    mail.knows_keys = knows_keys
    with mail.at(lanes=lanes) as worker:
        worker.fault(LANE, Crash())
        job = worker.publish(LANE)
        worker.run_until_idle()
        job.assert_state(state, attempts=2)
        job.assert_one_effect()
        assert ("reconciled" in [event.name for event in job.events]) == (lanes is RECONCILE)


@pytest.mark.parametrize(
    ("at", "attempts", "ambiguous"),
    [("claimed", 2, True), ("recorded", 1, False), ("acked", 1, False), ("received", 1, False)],
)
def test_a_crash_elsewhere(mail: Mail, at: Any, attempts: int, ambiguous: bool) -> None:
    with mail.at() as worker:
        worker.fault(LANE, Crash(at))
        job = worker.publish(LANE)
        worker.run_until_idle()
        job.assert_state("done", attempts=attempts)
        job.assert_one_effect()
        assert job.view.ambiguous is ambiguous


def test_another_instance_takes_over_when_the_lease_is_out(mail: Mail) -> None:
    with mail.at(lease_s=40) as worker:
        worker.fault(LANE, Crash(heir=Heir.OTHER))
        job = worker.publish(LANE)
        worker.run_until_idle()
        assert len(job.starts) == 2
        assert 40 <= job.starts[1].at_s < 80


def test_a_daemon_that_stood_still_is_fenced(mail: Mail) -> None:
    with mail.at(lanes=HOLD) as worker:
        worker.fault(LANE, Freeze())
        job = worker.publish(LANE)
        worker.run_until_idle()
        job.assert_state("unresolved", attempts=2)
        job.assert_one_effect()
        assert "claim_lost" in [
            event.fields["disposition"] for event in job.events if event.name == "settled"
        ]


@pytest.mark.parametrize(("seconds", "drain_s", "attempts"), [(5, 10, 1), (20, 10, 2)])
def test_a_drain_in_the_middle_lets_it_finish_or_cuts_it(
    mail: Mail, seconds: float, drain_s: float, attempts: int
) -> None:
    mail.seconds = seconds
    with mail.at(drain_s=drain_s) as worker:
        worker.fault(LANE, Drain(after_s=1))
        job = worker.publish(LANE)
        worker.run_until_idle()
        job.assert_state("done", attempts=1)
        job.assert_one_effect()
        assert len(job.starts) == attempts
        assert [event.fields["reason"] for event in job.events if event.name == "recorded"] == [
            *["drain_cut"] * (attempts - 1),
            "",
        ]


def test_a_handler_that_heeds_the_drain_gives_the_job_back() -> None:
    app = App()

    @app.job("pages.v1", lane="pages")
    async def pages(payload: Any, ctx: Context) -> None:
        for _ in range(10):
            if ctx.draining.is_set():
                raise Interrupted
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 1)

    with TestWorker(app) as worker:
        worker.fault("pages", Drain(after_s=3.5))
        job = worker.publish("pages")
        worker.run_until_idle()
        job.assert_state("done", attempts=1)
        assert [start.at_s for start in job.starts] == [0, 4]


def test_a_connection_that_breaks_brings_a_copy_and_no_second_effect(mail: Mail) -> None:
    mail.seconds = 8
    with mail.at() as worker:
        worker.fault(LANE, Disconnect(after_s=1))
        job = worker.publish(LANE)
        worker.run_until_idle()
        job.assert_state("done", attempts=1)
        job.assert_one_effect()
        settled = [event.fields for event in job.events if event.name == "settled"]
        assert [one["disposition"] for one in settled] == ["held", "held", "complete", "decided"]


def test_copies_have_one_effect(mail: Mail) -> None:
    with mail.at() as worker:
        worker.fault(LANE, Duplicate("recorded"))
        job = worker.publish(LANE, copies=3)
        worker.run_until_idle()
        job.assert_one_effect()
        worker.assert_states(done=1)


def test_another_content_under_the_same_key_is_a_conflict(mail: Mail) -> None:
    with mail.at() as worker:
        job = worker.publish(LANE, {"a": 1}, key="k")
        worker.publish(LANE, {"a": 2}, key="k")
        worker.run_until_idle()
        job.assert_one_effect()
        assert "conflict" in [event.fields.get("disposition") for event in job.events]


def test_a_ledger_that_is_away_holds_up_the_record_and_repeats_nothing(mail: Mail) -> None:
    with mail.at() as worker:
        worker.fault(LANE, LedgerAway(for_s=20))
        job = worker.publish(LANE)
        worker.run_until_idle()
        job.assert_state("done", attempts=1)
        job.assert_one_effect()
        assert worker.elapsed_s >= 20
        assert any(event.text.startswith("ledger.unavailable") for event in worker.events)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Hang(), ("unknown", "timeout")),
        (Lost(), ("unknown", "exception:ConnectionResetError")),
        (Unknown("no_answer"), ("unknown", "no_answer")),
        (ValueError("bug"), ("unknown", "exception:ValueError")),
        (Permanent("refused"), ("permanent", "refused")),
        (Transient("not_now"), ("transient", "not_now")),
    ],
)
def test_what_a_handler_may_come_to(mail: Mail, fault: Any, outcome: tuple[str, str]) -> None:
    with mail.at(lanes={LANE: {"max_attempts": 1}}) as worker:
        worker.fault(LANE, fault)
        job = worker.publish(LANE)
        worker.run_until_idle()
        job.assert_state("dead", attempts=1, reason=outcome[1])
        assert job.view.history[-1].outcome == outcome[0]
        assert len(job.effects) == isinstance(fault, Lost)


def test_a_plain_function_runs_in_its_thread_while_the_clock_stands_still() -> None:
    app = App()

    @app.job("plain.v1", lane="plain")
    def plain(payload: Any, ctx: Context) -> str:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return f"{ctx.now():%H:%M} {ctx.remaining_s():g}"

    with TestWorker(app) as worker:
        worker.fault("plain", Transient("not_now"))
        worker.fault("plain", Crash(), skip=1)
        job = worker.publish("plain")
        worker.run_until_idle()
        job.assert_state("done", attempts=3)
        assert job.result == "09:00 60"


def test_the_clock_stands_still_for_a_thread_of_an_async_handler() -> None:
    app = App()

    @app.job("thread.v1", lane="thread", timeout_s=5)
    async def handler(payload: Any) -> str:
        return await asyncio.to_thread(lambda: "from a thread")

    with TestWorker(app) as worker:
        job = worker.publish("thread")
        worker.run_until_idle()
        assert (job.result, worker.elapsed_s) == ("from a thread", 0)


# --- tests that would prove nothing -------------------------------------------------------------------


def test_a_fault_that_never_strikes_fails_the_test(mail: Mail) -> None:
    with mail.at() as worker:
        worker.fault(LANE, Crash("published"), times=2)
        worker.publish(LANE)
        with pytest.raises(AssertionError, match=r"never struck: Crash\(at='published'.* for mail"):
            worker.run_until_idle()


def test_a_handler_that_reaches_for_the_network_fails_the_test() -> None:
    app = App()

    @app.job("net.v1", lane="net")
    async def handler(payload: Any) -> None:
        await asyncio.open_connection("downstream.example", 80)

    with TestWorker(app) as worker:
        worker.publish("net")
        with pytest.raises(NotVirtual, match=r"downstream\.example:80"):
            worker.run_until_idle()


def test_a_job_that_does_not_come_to_an_end_fails_the_test(mail: Mail) -> None:
    with mail.at() as worker:
        worker.publish(LANE, not_before=EPOCH + timedelta(days=3))
        with pytest.raises(AssertionError, match=r"still at work after 1:00:00"):
            worker.run_until_idle(within=timedelta(hours=1))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"lanes": {"post": {}}}, "no lane 'post'"),
        ({"lanes": {LANE: {"budget": "api"}}}, "no budget 'api'"),
        ({"http": {LANE: None}}, "no HTTP lane 'mail'"),
    ],
)
def test_a_setting_for_nothing_is_refused(mail: Mail, options: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        TestWorker(mail.app, **options)


def test_a_lane_that_reconciles_needs_handlers_that_can() -> None:
    app = App()

    @app.job("blind.v1", lane="blind")
    async def handler(payload: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"'blind\.v1' of lane 'blind' has no reconcile"):
        TestWorker(app, lanes={"blind": {"on_unknown": "reconcile"}})


def test_assertions_show_the_timeline(mail: Mail) -> None:
    with mail.at() as worker:
        worker.fault(LANE, Transient("not_now"))
        job = worker.publish(LANE, key="k")
        with pytest.raises(AssertionError, match="not in the ledger yet"):
            job.assert_state("done")
        worker.run_until_idle()
        with pytest.raises(AssertionError, match=r"is done after 2 attempts, and not dead") as state:
            job.assert_state("dead")
        with pytest.raises(AssertionError, match=r"no 'committed' after started") as events:
            job.assert_events("started", "committed")
        with pytest.raises(AssertionError, match=r"\{'done': 1\}, and not \{'dead': 1\}") as states:
            worker.assert_states(dead=1)
    assert all("recorded: transient not_now: again in" in str(each.value) for each in (state, events, states))


def test_a_daemon_that_loses_a_retry_is_found_out(mail: Mail) -> None:
    waits = "await lane.settler.wait(delivery, envelope.key, wait_s)"
    acks_at_once = Mutation(acklast.delivery, "_settle", waits, "await lane.settler.ack(delivery)", "")
    with acks_at_once.made(), mail.at() as worker:
        worker.fault(LANE, Transient("not_now"))
        job = worker.publish(LANE)
        worker.run_until_idle()
        with pytest.raises(AssertionError, match="is waiting after 1 attempt "):
            job.assert_state("done")


def test_a_daemon_that_takes_the_verdict_of_a_former_owner_is_found_out(mail: Mail) -> None:
    no_fence = Mutation(MemoryLedger, "record", "job.fence != record.fence", "False", "")
    with no_fence.made(), mail.at() as worker:
        worker.fault(LANE, Freeze())
        job = worker.publish(LANE)
        worker.run_until_idle()
        assert "claim_lost" not in [event.fields.get("disposition") for event in job.events]


# --- the same again -----------------------------------------------------------------------------------


def story(mail: Mail, seed: int) -> str:
    with mail.at(seed=seed) as worker:
        worker.fault(LANE, Transient("not_now"), times=3)
        worker.fault(LANE, Crash(), skip=4)
        for number in range(3):
            worker.publish(LANE, key=str(number))
        worker.run_until_idle()
        return worker.story()


def test_the_same_script_and_seed_tell_the_same_story(mail: Mail) -> None:
    first, second, other = story(mail, 1), story(mail, 1), story(mail, 2)
    assert first == second
    assert first != other


def test_time_passes_in_steps(mail: Mail) -> None:
    mail.seconds = 10
    with mail.at() as worker:
        job = worker.publish(LANE)
        worker.advance(4)
        assert (job.state, worker.now) == ("claimed", EPOCH + timedelta(seconds=4))
        worker.advance(6)
        assert job.state == "done"


async def test_in_an_async_test_it_works_as_well(mail: Mail) -> None:
    with mail.at() as worker:
        job = worker.publish(LANE)
        worker.run_until_idle()
        job.assert_state("done")
        with pytest.raises(ValueError, match="time zone"):
            worker.publish(LANE, deadline=datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None))


def test_what_nothing_will_bring_is_told(mail: Mail) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    from acklast.testing.virtual import run

    with pytest.raises(Stuck):
        run(forever())


def test_what_a_handler_leaves_behind_ends_with_the_worker() -> None:
    app, left = App(), []

    @app.job("a.v1", lane="a")
    async def handler(payload: Any) -> None:
        left.append(asyncio.create_task(asyncio.Event().wait()))

    with TestWorker(app) as worker:
        worker.publish("a")
        worker.run_until_idle()
        assert not left[0].done()
    assert left[0].cancelled()


def test_the_application_can_be_tested_again_after_its_end() -> None:
    app, ended = App(), []

    @app.job("a.v1", lane="a")
    async def handler(payload: Any) -> None: ...

    @app.on_stop
    async def stop() -> None:
        ended.append(1)

    for _ in range(2):
        with TestWorker(app) as worker:
            worker.publish("a")
            worker.run_until_idle()
    assert ended == [1, 1]


def test_a_fault_may_strike_at_every_point_that_the_daemon_has() -> None:
    assert get_args(Point) == faults.POINTS


TOML = """
app = "fanned:app"
[broker]
url = "amqp://127.0.0.1"
[ledger]
dsn = "postgresql://127.0.0.1/acklast"
lease_s = 12
[drain]
deadline_s = 7
[lanes.one]
[lanes.two]
[fan_out.both]
lanes = ["one", "two"]
"""
FANNED = """
from acklast import App

app = App()

@app.job("one.v1", lane="one")
async def one(payload): ...

@app.job("two.v1", lane="two")
async def two(payload): ...
"""


def test_a_configuration_brings_its_fan_outs_and_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "acklast.toml").write_text(TOML)
    (tmp_path / "fanned.py").write_text(FANNED)
    with TestWorker(tmp_path / "acklast.toml") as worker:
        worker.fault("two", Crash(heir=Heir.OTHER))
        job = worker.publish("both", key="k")
        with pytest.raises(AssertionError, match="no lane 'three': one, two, both"):
            worker.publish("three")
        worker.run_until_idle()
        assert (job.lane, job.state) == ("one", "done")
        other = worker.job("two", "k")
        assert (other.state, other.attempts, len(other.starts)) == ("done", 2, 2)
        assert 12 <= other.starts[1].at_s < 24
