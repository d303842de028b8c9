"""Coalesced acks: every tag once, and a multiple ack only over what is settled."""

from __future__ import annotations

from itertools import pairwise

import pamqp.frame
from aiormq import spec
from hypothesis import given
from hypothesis import strategies as st

from acklast.acks import Prefix, ack_frame, nack_frame


def read(octets: bytes) -> list[spec.Basic.Ack]:
    found: list[spec.Basic.Ack] = []
    while octets:
        used, channel, frame = pamqp.frame.unmarshal(octets)
        assert channel == 5
        assert isinstance(frame, spec.Basic.Ack)
        found.append(frame)
        octets = octets[used:]
    return found


class Broker:
    """What a broker does with acks, and what it refuses: a tag that is not open."""

    def __init__(self, tags: int) -> None:
        self.open = set(range(1, tags + 1))

    def hear(self, ack: spec.Basic.Ack) -> set[int]:
        assert ack.delivery_tag in self.open, "PRECONDITION_FAILED - unknown delivery tag"
        tags = {tag for tag in self.open if tag <= ack.delivery_tag} if ack.multiple else {ack.delivery_tag}
        self.open -= tags
        return tags


@given(st.permutations(range(1, 31)), st.lists(st.integers(1, 30), max_size=10), st.sets(st.integers(1, 30)))
def test_whatever_the_order_each_tag_is_acked_exactly_once_and_never_before_its_time(
    order: list[int], cuts: list[int], nacked: set[int]
) -> None:
    broker, prefix = Broker(30), Prefix()
    edges = sorted({0, *cuts, 30})
    for start, stop in pairwise(edges):
        group = order[start:stop]
        gone = [tag for tag in group if tag in nacked]
        broker.open -= set(gone)
        prefix.settle(gone)
        tags = [tag for tag in group if tag not in nacked]
        if tags:
            heard = set().union(*(broker.hear(ack) for ack in read(prefix.frames(5, tags))))
            assert heard == set(tags)
    assert broker.open == set()


def test_a_contiguous_run_is_one_frame() -> None:
    (ack,) = read(Prefix().frames(5, [3, 1, 2, 4]))
    assert (ack.delivery_tag, ack.multiple) == (4, True)


def test_the_frames_are_what_the_library_would_send() -> None:
    assert ack_frame(5, 9) == pamqp.frame.marshal(spec.Basic.Ack(9), 5)
    assert ack_frame(5, 9, multiple=True) == pamqp.frame.marshal(spec.Basic.Ack(9, True), 5)
    assert nack_frame(5, 9) == pamqp.frame.marshal(spec.Basic.Nack(9, False, True), 5)
