"""The simulation can fail: each of these mistakes breaks a promise, and is caught."""

from __future__ import annotations

from typing import Final

import pytest

import acklast.delivery
import acklast.judge
from acklast.ledger.memory import MemoryLedger
from acklast.settle import Settler
from simulation.account import Violation
from simulation.catalogue import CATALOGUE
from simulation.mutation import Mutation
from simulation.scenario import Scenario
from simulation.schedule import ALL_WELL
from simulation.sweep import singles
from simulation.world import play

DELIVERY: Final = acklast.delivery

MUTATIONS: Final = {
    "acks before it records": Mutation(
        DELIVERY,
        "_take_through",
        "recorded = await _record(",
        "await lane.settler.ack(delivery); recorded = await _record(",
        "success",
    ),
    "acts on a verdict that nobody recorded": Mutation(
        DELIVERY,
        "_record",
        "await insist_on(lane, envelope, session, record, claimed.attempt)",
        "Recorded.RECORDED",
        "success",
    ),
    "settles first and records later": Mutation(
        DELIVERY,
        "_take_through",
        "recorded = await _record(lane, envelope, session, claimed, judged)",
        "recorded = Recorded.RECORDED; await _settle(lane, delivery, envelope, claimed, judged, recorded); "
        "await _record(lane, envelope, session, claimed, judged)",
        "retry",
    ),
    "acks a retry without a carrier": Mutation(
        DELIVERY,
        "_settle",
        "await lane.settler.wait(delivery, envelope.key, wait_s)",
        "await lane.settler.ack(delivery)",
        "retry",
    ),
    "takes an unconfirmed publish for a confirmed one": Mutation(
        Settler, "_insist", "sent.status is Status.CONFIRMED", "sent.status", "retry"
    ),
    "acks a copy of a job that another owns": Mutation(
        DELIVERY,
        "_settle_unclaimed",
        "_HELD_S)\n            acked = await lane.settler.wait(delivery, envelope.key, wait_s)",
        "_HELD_S)\n            acked = await lane.settler.ack(delivery)",
        "success",
    ),
    "acks a job that is not due": Mutation(
        DELIVERY,
        "_settle_unclaimed",
        "(claimed.at - claimed.now).total_seconds()\n"
        "            acked = await lane.settler.wait(delivery, envelope.key, wait_s)",
        "0\n            acked = await lane.settler.ack(delivery)",
        "not before",
    ),
    "keeps no evidence of a conflict": Mutation(
        DELIVERY,
        "_settle_unclaimed",
        "await _bury_stray(lane, letters.of_conflict(lane.name, envelope))",
        "pass",
        "same key, other content",
    ),
    "keeps no evidence of a malformed message": Mutation(
        DELIVERY,
        "_keep_malformed",
        "await _bury_stray(lane, letters.of_malformed(lane.name, malformed))",
        "pass",
        "malformed",
    ),
    "acks what a drain gives back": Mutation(
        Settler, "give_back", "delivery.channel.nack(", "delivery.channel.ack(", "one slot, two jobs"
    ),
    "does not tell the handler of the doubt": Mutation(
        acklast.judge, "context_of", "ambiguous=claimed.ambiguous", "ambiguous=False", "success"
    ),
    "starts in doubt where the lane holds": Mutation(
        DELIVERY,
        "judge",
        "claimed.ambiguous, claimed.stopped",
        "False, False",
        "hold: success",
    ),
    "starts although its lease has run out": Mutation(
        acklast.judge, "refusal_of", "not lane.lease.holds(session)", "False", "success"
    ),
    "starts after a long reconcile although its lease has run out": Mutation(
        acklast.judge,
        "_barred",
        "refusal := refusal_of(job.lane, job.session, job.entry)",
        'refusal := ""',
        "reconcile: after a crash",
    ),
    "starts in doubt what its run's end has stopped": Mutation(
        DELIVERY,
        "judge",
        "claimed.ambiguous, claimed.stopped",
        "claimed.ambiguous, False",
        "its run is cancelled after an unknown",
    ),
    "starts what comes back after its run was cancelled": Mutation(
        MemoryLedger,
        "claim",
        "(job.run or claim.run) in self._rows.cancelled",
        "False",
        "its run is cancelled",
    ),
    "cancels what may have happened": Mutation(
        MemoryLedger,
        "cancel_run",
        "not job.ambiguous",
        "True",
        "its run is cancelled after an unknown",
    ),
    "takes a job from a living owner": Mutation(
        MemoryLedger, "claim", "self._alive(job.session)", "False", "published twice, two processes"
    ),
    "takes a job from a dead owner without a doubt": Mutation(
        MemoryLedger, "_crashed", "job.ambiguous = True", "pass", "success"
    ),
    "records whatever the fence": Mutation(
        MemoryLedger, "record", "job.fence != record.fence", "False", "slower the second time"
    ),
    "forgets the payload of a job that it holds": Mutation(
        MemoryLedger, "_apply", "self._bury(session, change.letter, record, job)", "pass", "hold: unknown"
    ),
}


def hunt(scenario: Scenario) -> None:
    """Everything that may go wrong, one at a time, until a promise is broken."""
    play(scenario, ALL_WELL)
    for schedule in singles(scenario):
        play(scenario, schedule)


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_mistake_is_caught(name: str) -> None:
    mutation = MUTATIONS[name]
    with mutation.made(), pytest.raises(Violation):
        hunt(CATALOGUE[mutation.scenario])
