"""What the plan does not name, and what is to be done about each finding."""

from __future__ import annotations

import pytest

from acklast_topology.changes import Action, changes
from acklast_topology.finding import Finding, Found, missing, refused
from acklast_topology.leftovers import Holding, leftover, stray_bindings, unplanned
from acklast_topology.names import Names, Place
from acklast_topology.plan import bindings_of, plan_for

NAMES = Names()
PLAN = plan_for(NAMES, ["rent"], (1, 30))
NOBODY = 0


@pytest.mark.parametrize(
    ("queue", "place"),
    [
        (NAMES.work("rent"), Place("rent", "work")),
        (NAMES.dead("rent"), Place("rent", "dead")),
        (NAMES.wait("a-b", 30), Place("a-b", "wait", 30)),
        (NAMES.fair("rent", 8), Place("rent", "fair", 8)),
        (NAMES.moving(NAMES.wait("rent", 5)), Place("rent", "wait", 5, moving=True)),
        (NAMES.unrouted, None),
        (NAMES.ingress, None),
        ("other.v1.rent.work", None),
        ("acklast.v1.rent.wait", None),
        ("acklast.v1.rent.work.3", None),
        ("acklast.v1.-rent.work", None),
        ("acklast.v1.rent.work.moving.moving", None),
    ],
)
def test_a_queue_is_known_by_its_name(queue: str, place: Place | None) -> None:
    assert NAMES.place(queue) == place


def test_what_the_plan_does_not_name_is_found() -> None:
    old = plan_for(NAMES, ["rent", "mail"], (1, 5, 30))
    rows = [{"name": queue.name} for queue in old.queues] + [{"name": "other.v1.x.work"}, {"name": "mine"}]
    assert set(unplanned(NAMES, PLAN, rows)) == {
        NAMES.wait("rent", 5),
        NAMES.work("mail"),
        NAMES.dead("mail"),
        *(NAMES.wait("mail", seconds) for seconds in (1, 5, 30)),
    }


@pytest.mark.parametrize(
    ("queue", "messages", "consumers", "action", "said"),
    [
        (NAMES.wait("rent", 5), 0, NOBODY, Action.REMOVE, "is empty"),
        (NAMES.wait("rent", 5), 3, NOBODY, Action.LEAVE, "holds 3 jobs"),
        (NAMES.wait("rent", 5), 3, NOBODY, Action.LEAVE, "within 5 s"),
        (NAMES.fair("rent", 2), 3, NOBODY, Action.CORRECT, "no fair_by"),
        (NAMES.work("mail"), 0, NOBODY, Action.REMOVE, "is empty"),
        (NAMES.work("mail"), 3, NOBODY, Action.CORRECT, "no daemon reads lane mail"),
        (NAMES.wait("mail", 5), 3, NOBODY, Action.CORRECT, "no daemon reads lane mail"),
        (NAMES.dead("mail"), 3, NOBODY, Action.CORRECT, "holds 3 dead letters"),
        (NAMES.work("mail"), 3, 1, Action.LEAVE, "1 consumers read it"),
        (NAMES.moving(NAMES.work("rent")), 3, NOBODY, Action.CORRECT, "interrupted"),
        (NAMES.moving(NAMES.unrouted), 3, NOBODY, Action.CORRECT, "interrupted"),
        (NAMES.moving(NAMES.work("rent")), 0, NOBODY, Action.REMOVE, "is empty"),
        ("acklast.v1.notes", 0, NOBODY, Action.LEAVE, "makes no queue of this name"),
    ],
)
def test_what_is_left_is_judged_by_what_it_holds(
    queue: str, messages: int, consumers: int, action: Action, said: str
) -> None:
    [change] = changes([leftover(NAMES, PLAN, queue, Holding(messages, consumers))])
    assert change.action is action
    assert said in change.detail
    assert change.to_do is (action is not Action.LEAVE)


def row(source: str, target: str, key: str, kind: str = "queue") -> dict[str, str]:
    return {"source": source, "destination": target, "destination_type": kind, "routing_key": key}


def test_bindings_of_ours_are_no_strays_even_of_other_lanes() -> None:
    queues = [NAMES.work("mail"), NAMES.fair("mail", 1), NAMES.moving(NAMES.work("mail")), NAMES.unrouted]
    queues += [queue.name for queue in PLAN.queues] + [NAMES.moving(NAMES.unrouted)]
    rows = [row(b.source, b.queue, b.key) for queue in queues for b in bindings_of(NAMES, queue)]
    rows += [row("", queue, queue) for queue in queues] + [row("theirs", "theirs", "#")]
    assert stray_bindings(NAMES, PLAN, rows) == []


@pytest.mark.parametrize(
    ("stray", "said"),
    [
        (row(NAMES.ingress, NAMES.work("rent"), "#"), "another way"),
        (row("theirs", NAMES.work("rent"), "rent"), "another way"),
        (row(NAMES.ingress, "theirs", "#"), "copies of messages go to queue theirs"),
        (row(NAMES.route, "theirs", "rent.work", "exchange"), "copies of messages go to exchange theirs"),
    ],
)
def test_a_stray_binding_is_a_remark(stray: dict[str, str], said: str) -> None:
    [finding] = stray_bindings(NAMES, PLAN, [stray])
    assert finding.status is Found.EXTRA
    assert finding.fit
    assert said in finding.detail
    [change] = changes([finding])
    assert change.action is Action.LEAVE


def test_each_finding_asks_for_its_change() -> None:
    differs = Finding("queue", "q", Found.DIFFERS, "x is 1, not 2", "r", 7)
    policy = Finding("policy", "q", Found.DIFFERS, "expires", "r")
    found = [
        missing("queue", "q"),
        differs,
        policy,
        refused("queue", "q", "no"),
        Finding("policy", "policies", Found.UNSEEN),
    ]
    asked = changes([Finding("queue", "q", Found.PRESENT), *found])
    assert [change.action for change in asked] == [
        Action.CREATE,
        Action.MIGRATE,
        Action.CORRECT,
        Action.CORRECT,
        Action.UNSEEN,
    ]
    assert asked[1].detail == "x is 1, not 2; holds 7 messages"


def test_a_fan_outs_binding_is_ours_where_it_is_configured() -> None:
    binding = row(NAMES.ingress, NAMES.work("rent"), "ended.#")
    fanned = plan_for(NAMES, ["rent"], fan_out={"ended": ["rent", "mail"]})
    assert stray_bindings(NAMES, fanned, [binding]) == []
    assert len(stray_bindings(NAMES, PLAN, [binding])) == 1
