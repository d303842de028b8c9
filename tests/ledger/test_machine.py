"""Random histories of a few jobs, and what must hold in every one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from acklast.errors import ClaimLost, SessionLost
from acklast.ledger.api import Decided, Fresh, Held, JobView, NotDue, Recorded, Session, State
from acklast.ledger.backlog import DEPTHS
from acklast.outcome import Bury, Complete, GiveBack, Hold, Retry, Verdict
from harness.drawn import drawn
from ledger.worlds import LANE, MemoryWorld, a_claim, a_record, start

T = TypeVar("T")
KEYS = ("a", "b")
INSTANCES = ("one", "two", "three")
FINAL = {State.DONE, State.DEAD, State.CANCELLED}


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits: the memory store has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the memory store waited")


class Histories(RuleBasedStateMachine):
    """Three daemons, two jobs, leases that run out, people who cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.world = MemoryWorld()
        self.ledger = self.world.ledger
        self.sessions: dict[str, Session] = {}
        self.live: set[int] = set()
        self.claims: dict[str, list[tuple[Session, Fresh]]] = {key: [] for key in KEYS}
        self.before: dict[str, JobView] = {}
        self.completed: dict[str, int] = dict.fromkeys(KEYS, 0)

    def job(self, key: str) -> JobView | None:
        return next(iter(now(self.ledger.jobs(key))), None)

    # --- what happens -------------------------------------------------------------------------------

    @rule(instance=st.sampled_from(INSTANCES))
    def a_daemon_starts(self, instance: str) -> None:
        if instance in self.sessions:
            self.live.discard(self.sessions[instance].id)
        session = now(start(self.ledger, instance, lease_s=1e6))
        self.sessions[instance] = session
        self.live.add(session.id)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def a_lease_runs_out(self, data: st.DataObject) -> None:
        session = self.sessions[data.draw(st.sampled_from(sorted(self.sessions)))]
        now(self.world.run_out(session))
        self.live.discard(session.id)
        assert not now(self.ledger.renew(session))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), key=st.sampled_from(KEYS), later_s=st.sampled_from([-1, 0, 5]))
    def a_delivery_comes(self, data: st.DataObject, key: str, later_s: int) -> None:
        session = self.sessions[data.draw(st.sampled_from(sorted(self.sessions)))]
        before = self.job(key)
        claim = a_claim(key, not_before=self.world.at + timedelta(seconds=later_s))
        try:
            answer = now(self.ledger.claim(session, claim))
        except SessionLost:
            assert session.id not in self.live
            return
        assert session.id in self.live
        after = self.job(key)
        assert after is not None
        if isinstance(answer, Fresh):
            assert before is None or before.state not in FINAL | {State.UNRESOLVED}
            crashed = before is not None and before.state is State.CLAIMED
            assert not crashed or answer.ambiguous
            assert answer.fence == (before.fence if before else 0) + 1
            self.claims[key].append((session, answer))
            return
        assert after == before or (before is None and after.state is State.WAITING)
        match answer:
            case Decided(state):
                assert state in FINAL | {State.UNRESOLVED}
            case Held():
                assert after.state is State.CLAIMED
            case NotDue(at):
                assert at > self.world.at

    @precondition(lambda self: any(self.claims.values()))
    @rule(data=st.data(), kind=st.sampled_from([Complete, Retry, Bury, Hold, GiveBack]), flag=st.booleans())
    def an_attempt_ends(self, data: st.DataObject, kind: type[Verdict], flag: bool) -> None:
        key = data.draw(st.sampled_from([key for key in KEYS if self.claims[key]]))
        session, fresh = data.draw(st.sampled_from(self.claims[key]))
        before = self.job(key)
        assert before is not None
        told = now(self.ledger.record(session, a_record(fresh, self._verdict(kind, flag), key)))
        after = self.job(key)
        mine = before.fence == fresh.fence
        assert (told is Recorded.RECORDED) == mine
        if not (mine and before.state is State.CLAIMED):
            assert after == before
        elif kind is Complete:
            self.completed[key] += 1

    def _verdict(self, kind: type[Verdict], flag: bool) -> Verdict:
        at = self.world.at + timedelta(seconds=3 if flag else 0)
        made: dict[type[Verdict], Verdict] = {
            Complete: Complete(1),
            Retry: Retry(at, "busy", spends=flag, ambiguous=not flag),
            Bury: Bury("refused"),
            Hold: Hold("timeout"),
            GiveBack: GiveBack("drain", ambiguous=flag),
        }
        return made[kind]

    @precondition(lambda self: any(self.claims.values()))
    @rule(data=st.data())
    def a_transaction_ends(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key in KEYS if self.claims[key]]))
        session, fresh = data.draw(st.sampled_from(self.claims[key]))
        before = self.job(key)
        assert before is not None
        owned = before.state is State.CLAIMED and before.fence == fresh.fence

        async def run() -> None:
            async with self.ledger.transaction(session, a_record(fresh, Complete(1), key)):
                pass

        try:
            now(run())
        except ClaimLost:
            assert not owned
            assert self.job(key) == before
        else:
            assert owned
            self.completed[key] += 1

    @rule(key=st.sampled_from(KEYS))
    def a_person_cancels(self, key: str) -> None:
        before = self.job(key)
        done = now(self.ledger.cancel(LANE, key))
        assert done == (before is not None and before.state not in FINAL)

    @rule(seconds=st.integers(0, 5))
    def time_passes(self, seconds: int) -> None:
        now(self.world.wait_s(seconds))

    # --- what must hold -----------------------------------------------------------------------------

    @invariant()
    def fences_grow_and_ends_stay(self) -> None:
        for key in KEYS:
            job, before = self.job(key), self.before.get(key)
            if job is None:
                continue
            if before is not None:
                assert job.fence >= before.fence
                assert job.state == before.state or before.state not in FINAL
                assert job.ambiguous or not before.ambiguous
                assert (job.state is State.CLAIMED) <= (job.fence > before.fence or job == before)
            self.before[key] = job

    @invariant()
    def an_effect_is_recorded_once(self) -> None:
        for key in KEYS:
            job = self.job(key)
            assert self.completed[key] == int(job is not None and job.state is State.DONE)

    @invariant()
    def counters_agree(self) -> None:
        for key in KEYS:
            if (job := self.job(key)) is not None:
                assert 0 <= job.attempts <= len(self.claims[key]) <= job.fence
                fences = [attempt.fence for attempt in job.history]
                assert fences == sorted(set(fences))

    @invariant()
    def the_backlog_is_what_the_jobs_are(self) -> None:
        states = Counter(job.state for key in KEYS if (job := self.job(key)) is not None)
        backlog = now(self.ledger.backlog())
        told = {one.state: backlog.jobs(None, None, one.state) for one in backlog.depths}
        assert told == {state: jobs for state, jobs in states.items() if state in DEPTHS}


Histories.TestCase.settings = drawn(25, 200, stateful_step_count=40)
TestHistories = Histories.TestCase
