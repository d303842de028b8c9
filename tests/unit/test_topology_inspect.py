"""What the management API shows is held against the plan: differences, and policies that lose messages."""

from __future__ import annotations

from typing import Any

import pytest

from acklast_topology.definitions import definitions
from acklast_topology.finding import Found
from acklast_topology.inspect import inspect
from acklast_topology.names import Names
from acklast_topology.plan import plan_for

NAMES = Names()
PLAN = plan_for(NAMES, ["rent"])
WORK, WAIT, DEAD = NAMES.work("rent"), NAMES.wait("rent", 30), NAMES.dead("rent")


class Shown:
    """What the API shows of a virtual host that is as planned, to be spoilt."""

    def __init__(self) -> None:
        written = definitions(PLAN, "/")
        self.exchanges: list[dict[str, Any]] = written["exchanges"]
        self.queues: list[dict[str, Any]] = [{**queue, "type": "quorum"} for queue in written["queues"]]
        self.bindings: list[dict[str, Any]] = written["bindings"]

    def queue(self, name: str) -> dict[str, Any]:
        return next(queue for queue in self.queues if queue["name"] == name)

    def exchange(self, name: str) -> dict[str, Any]:
        return next(exchange for exchange in self.exchanges if exchange["name"] == name)

    def told(self, policies: list[dict[str, Any]] | None = None) -> list[tuple[str, Found, str]]:
        found = inspect(
            PLAN, self.exchanges, self.queues, self.bindings, policies or [], longest_unacked_s=900
        )
        assert all(finding.remedy and not finding.fit for finding in found)
        return [(finding.name, finding.status, finding.detail) for finding in found]


def test_what_is_as_planned_gives_no_word() -> None:
    assert Shown().told() == []


@pytest.mark.parametrize(
    ("queue", "policy", "said"),
    [
        (WORK, {"expires": 60_000}, "expires"),
        (DEAD, {"message-ttl": 86_400_000}, "message-ttl"),
        (WORK, {"message-ttl": 86_400_000}, "message-ttl"),
        (WAIT, {"message-ttl": 29_999}, "message-ttl"),
        (WORK, {"delivery-limit": 20}, "delivery-limit"),
        (WORK, {"delivery-limit": -1}, "delivery-limit"),
        # In a quorum queue the policy's overflow is in force, whatever the argument says.
        (WORK, {"max-length": 10, "overflow": "drop-head"}, "overflow"),
        (DEAD, {"dead-letter-exchange": "elsewhere"}, "dead-letter-exchange"),
    ],
)
def test_a_policy_that_loses_messages_is_named(queue: str, policy: dict[str, Any], said: str) -> None:
    shown = Shown()
    shown.queue(queue).update(policy="tidy", effective_policy_definition=policy)
    [(name, status, detail)] = shown.told()
    assert (name, status) == (queue, Found.DIFFERS)
    assert f"policy 'tidy' sets {said}" in detail


@pytest.mark.parametrize(
    ("queue", "policy"),
    [
        (WAIT, {"message-ttl": 30_000}),
        (WORK, {"delivery-limit": 1000}),
        (WORK, {"max-length": 10}),  # a full queue refuses, by our argument
        (WORK, {"dead-letter-exchange": "elsewhere"}),  # our argument is in force
        (WORK, {"ha-mode": "all"}),
        (WORK, None),
    ],
)
def test_a_policy_that_harms_nothing_is_let_be(queue: str, policy: dict[str, Any] | None) -> None:
    shown = Shown()
    shown.queue(queue).update(policy="tidy", effective_policy_definition=policy)
    assert shown.told() == []


@pytest.mark.parametrize(
    ("queue", "timeout_ms", "told"),
    [(WORK, 929_000, 1), (WORK, 930_000, 0), (DEAD, 60_000, 1), (WAIT, 60_000, 0)],
)
def test_a_consumer_timeout_that_no_daemon_keeps_is_named(queue: str, timeout_ms: int, told: int) -> None:
    shown = Shown()
    shown.queue(queue).update(policy="hasty", effective_policy_definition={"consumer-timeout": timeout_ms})
    found = shown.told()
    assert len(found) == told
    assert all("policy 'hasty' sets consumer-timeout" in detail for _, _, detail in found)


def test_an_operators_policy_is_named_too() -> None:
    shown = Shown()
    shown.queue(WORK).update(operator_policy="limits", effective_policy_definition={"expires": 1})
    assert "policy 'limits'" in shown.told()[0][2]


def test_a_classic_queue_under_our_name_is_unsafe() -> None:
    shown = Shown()
    shown.queue(WORK).update(type="classic", arguments={})
    assert "classic" in shown.told()[0][2]


def test_an_argument_that_differs_is_told_with_both_values() -> None:
    shown = Shown()
    shown.queue(WORK)["arguments"] |= {"x-overflow": "drop-head", "x-max-length": 5}
    [(_, _, detail)] = shown.told()
    assert "x-overflow is drop-head, not reject-publish" in detail
    assert "x-max-length is 5, not to be set" in detail


def test_what_is_missing_is_told() -> None:
    shown = Shown()
    shown.queues.remove(shown.queue(DEAD))
    gone = shown.bindings.pop(0)
    shown.exchanges[0]["type"] = "direct"
    statuses = {name: status for name, status, _ in shown.told()}
    assert statuses.pop(DEAD) is Found.MISSING
    assert statuses.pop(shown.exchanges[0]["name"]) is Found.DIFFERS
    assert list(statuses.values()) == [Found.MISSING]
    assert gone["destination"] in next(iter(statuses))


def test_an_alternate_exchange_by_policy_swallows_retries() -> None:
    shown = Shown()
    for name in (NAMES.route, NAMES.ingress):
        shown.exchange(name)["policy"] = "aside"
    aside = {"name": "aside", "definition": {"alternate-exchange": "elsewhere"}}
    # Of the ingress exchange our argument is in force.
    [(name, status, detail)] = shown.told([aside])
    assert (name, status) == (NAMES.route, Found.DIFFERS)
    assert "alternate-exchange = elsewhere" in detail
    assert shown.told([{"name": "aside", "definition": {"federation-upstream-set": "all"}}]) == []


def test_a_policy_that_may_not_be_seen_is_a_remark() -> None:
    shown = Shown()
    shown.exchange(NAMES.route)["policy"] = "aside"
    [remark] = inspect(PLAN, shown.exchanges, shown.queues, shown.bindings, None)
    assert (remark.status, remark.fit) == (Found.UNSEEN, True)
    assert "'aside'" in remark.detail


def test_an_internal_exchange_takes_nothing() -> None:
    shown = Shown()
    shown.exchange(NAMES.route)["internal"] = True
    assert "internal" in shown.told()[0][2]
