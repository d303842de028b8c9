"""Which message the broker closed a channel over, by its words."""

from __future__ import annotations

import pytest

from acklast_topology.culprit import Largest, is_culprit

TOO_LARGE = RuntimeError(
    "PRECONDITION_FAILED - message size 40 is larger than configured max size 30"  # as 3.8 and later say it
)
NO_RIGHT = RuntimeError("ACCESS_REFUSED - access to topic 'mail' in exchange 'a.v1.in' in vhost '/' refused")


@pytest.mark.parametrize(
    ("error", "routing_key", "size", "culprit"),
    [
        (TOO_LARGE, "mail", 40, True),
        (TOO_LARGE, "mail", 31, True),
        (TOO_LARGE, "mail", 30, False),
        (RuntimeError("message size 40 larger than max size 30"), "mail", 40, True),
        (NO_RIGHT, "mail", 1, True),
        (NO_RIGHT, "mail.b", 1, False),
        (RuntimeError("NOT_FOUND - no exchange 'a.v1.in' in vhost '/'"), "mail", 1, False),
        (RuntimeError(), "mail", 1, False),
    ],
)
def test_the_words_tell_whom_they_mean(error: Exception, routing_key: str, size: int, culprit: bool) -> None:
    assert is_culprit(error, routing_key, size) is culprit


def test_the_limit_is_learnt_and_then_kept() -> None:
    largest = Largest()
    largest.require(10**12)
    largest.learn(NO_RIGHT)
    largest.learn(TOO_LARGE)
    largest.learn(RuntimeError("gone"))
    largest.require(30)
    with pytest.raises(ValueError, match="31 bytes, and the broker takes 30"):
        largest.require(31)
