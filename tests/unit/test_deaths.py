"""Why the broker set a message aside, whatever stands in the header that says so."""

from __future__ import annotations

from typing import Any

import pytest

from acklast_topology.deaths import death_of
from acklast_topology.message import Reason


def death(**said: Any) -> dict[str, Any]:
    return {"x-death": [{"queue": "q", "reason": "rejected", "count": 1} | said, {"reason": "expired"}]}


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (death(), Reason.BROKER_REJECTED),
        (death(reason="delivery_limit"), Reason.BROKER_DELIVERY_LIMIT),
        (death(reason=b"maxlen"), Reason.BROKER_MAXLEN),
        (death(reason="expired"), Reason.BROKER_EXPIRED),
        (death(reason="something new"), Reason.BROKER_DEAD_LETTER),
        (death(reason=7), Reason.BROKER_DEAD_LETTER),
        ({}, Reason.BROKER_DEAD_LETTER),
        ({"x-death": []}, Reason.BROKER_DEAD_LETTER),
        ({"x-death": ["expired"]}, Reason.BROKER_DEAD_LETTER),
        ({"x-death": "expired"}, Reason.BROKER_DEAD_LETTER),
    ],
)
def test_the_last_death_is_the_reason(headers: dict[str, Any], reason: Reason) -> None:
    assert death_of(headers).reason is reason


def test_the_queue_is_told_and_what_is_not_text_is_escaped() -> None:
    assert death_of(death(queue=b"q\xff")).detail == r"the broker dead-lettered it from queue q\xff: rejected"
    assert death_of({"x-death": [{}]}).detail == "the broker dead-lettered it from queue ?: no reason given"
