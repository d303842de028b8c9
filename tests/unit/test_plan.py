"""The topology as data."""

from __future__ import annotations

from itertools import chain

import pytest

from acklast_topology.ladder import BUCKETS_S
from acklast_topology.names import Names, valid_name
from acklast_topology.plan import FAIR_QUEUES, Binding, Exchange, Plan, Queue, plan_for

NAMES = Names("shop")
PLAN = plan_for(NAMES, ["reminders", "cleanup"])
COMMON = {"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-delivery-limit": 100_000}


def queue(name: str, plan: Plan = PLAN) -> Queue:
    return next(queue for queue in plan.queues if queue.name == name)


def keys(source: str, target: str) -> set[str]:
    return {b.key for b in PLAN.bindings if (b.source, b.queue) == (source, target)}


def test_exchanges() -> None:
    assert set(map(repr, PLAN.exchanges)) == {
        repr(Exchange("shop.v1.in", "topic", {"alternate-exchange": "shop.v1.unrouted"})),
        repr(Exchange("shop.v1.unrouted", "fanout")),
        repr(Exchange("shop.v1.route", "direct")),
    }


def test_what_is_referred_to_comes_first() -> None:
    order = [exchange.name for exchange in PLAN.exchanges]
    assert order.index("shop.v1.unrouted") < order.index("shop.v1.in")


def test_a_work_queue() -> None:
    assert queue("shop.v1.reminders.work").arguments == {
        **COMMON,
        "x-dead-letter-exchange": "shop.v1.route",
        "x-dead-letter-routing-key": "reminders.dead",
        "x-dead-letter-strategy": "at-least-once",
    }
    assert keys("shop.v1.in", "shop.v1.reminders.work") == {"reminders", "reminders.#"}
    assert keys("shop.v1.route", "shop.v1.reminders.work") == {"reminders.work"}


@pytest.mark.parametrize("seconds", BUCKETS_S)
def test_a_wait_queue(seconds: int) -> None:
    name = f"shop.v1.reminders.wait.{seconds}"
    assert queue(name).arguments == {
        **COMMON,
        "x-message-ttl": seconds * 1000,
        "x-dead-letter-exchange": "shop.v1.route",
        "x-dead-letter-routing-key": "reminders.work",
        "x-dead-letter-strategy": "at-least-once",
    }
    assert keys("shop.v1.route", name) == {f"reminders.wait.{seconds}"}


def test_what_is_dead_or_unrouted_stays() -> None:
    assert queue("shop.v1.reminders.dead").arguments == COMMON
    assert keys("shop.v1.route", "shop.v1.reminders.dead") == {"reminders.dead"}
    assert queue("shop.v1.unrouted").arguments == COMMON
    assert keys("shop.v1.unrouted", "shop.v1.unrouted") == {""}


def test_nothing_is_missing_and_nothing_is_twice() -> None:
    names = [queue.name for queue in PLAN.queues]
    assert len(names) == len(set(names)) == 1 + 2 * (2 + len(BUCKETS_S))
    assert {b.queue for b in PLAN.bindings} == set(names)
    assert len(set(PLAN.bindings)) == len(PLAN.bindings)
    assert all(NAMES.owns(name) for name in chain(names, (e.name for e in PLAN.exchanges)))


def test_every_dead_letter_finds_a_queue() -> None:
    bound = {(b.source, b.key) for b in PLAN.bindings}
    targets = [
        (q.arguments["x-dead-letter-exchange"], q.arguments["x-dead-letter-routing-key"])
        for q in PLAN.queues
        if "x-dead-letter-exchange" in q.arguments
    ]
    assert len(targets) == 2 * (1 + len(BUCKETS_S))
    assert bound.issuperset(targets)


def test_a_lane_named_twice_is_one() -> None:
    assert plan_for(NAMES, ["a", "a"]) == plan_for(NAMES, ["a"])


def test_own_buckets() -> None:
    plan = plan_for(NAMES, ["a"], (2, 60))
    assert [q.name for q in plan.queues if ".wait." in q.name] == ["shop.v1.a.wait.2", "shop.v1.a.wait.60"]
    assert Binding("shop.v1.route", "shop.v1.a.wait.60", "a.wait.60") in plan.bindings


@pytest.mark.parametrize("lane", ["", "A", "a.b", "-a", "a-", "a" * 65, "ä", "a b", "a\n", "#"])
def test_bad_lanes(lane: str) -> None:
    assert not valid_name(lane)
    with pytest.raises(ValueError, match="use 1 to 64 of a-z"):
        plan_for(NAMES, [lane])


@pytest.mark.parametrize("ns", ["", "A.b", "a" * 65])
def test_bad_namespaces(ns: str) -> None:
    with pytest.raises(ValueError, match="use 1 to 64 of a-z"):
        Names(ns)


@pytest.mark.parametrize("buckets_s", [(), (0, 1), (-1,), (5, 5)])
def test_bad_buckets(buckets_s: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        plan_for(NAMES, ["a"], buckets_s)


def test_a_fair_lane_has_its_queues_and_no_other_has() -> None:
    plan = plan_for(NAMES, ["reminders", "cleanup"], fair=["reminders"])
    more = {q.name for q in plan.queues} - {q.name for q in PLAN.queues}
    assert more == {f"shop.v1.reminders.fair.{number}" for number in FAIR_QUEUES}
    work = queue("shop.v1.reminders.work").arguments
    for number in FAIR_QUEUES:
        name = f"shop.v1.reminders.fair.{number}"
        assert queue(name, plan).arguments == work
        keys = [(b.source, b.key) for b in plan.bindings if b.queue == name]
        assert keys == [("shop.v1.route", f"reminders.fair.{number}")]


def test_a_fan_out_is_bound_to_each_of_its_lanes_and_plans_them_all() -> None:
    fan_out = {"ended": ("cleanup", "mail")}
    plan = plan_for(NAMES, ["cleanup"], fan_out=fan_out)
    more = set(plan.bindings) - set(plan_for(NAMES, ["cleanup", "mail"]).bindings)
    assert more == {
        Binding("shop.v1.in", f"shop.v1.{lane}.work", key)
        for lane in ("cleanup", "mail")
        for key in ("ended", "ended.#")
    }
    assert plan.queues == plan_for(NAMES, ["cleanup", "mail"]).queues


@pytest.mark.parametrize(("name", "problem"), [("cleanup", "the name of a lane"), ("Not Valid", "not valid")])
def test_a_fan_out_has_a_name_of_its_own(name: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        plan_for(NAMES, ["cleanup"], fan_out={name: ["cleanup"]})
