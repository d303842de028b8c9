"""The table ``[fan_out.<name>]``: one publish becomes a job in each of several lanes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import PydanticCustomError

from acklast.config.section import Section


class FanOut(Section):
    """The lanes that get a copy of what is published to the fan-out's name."""

    lanes: Annotated[tuple[str, ...], Field(min_length=1)]


def check_fan_outs(fan_outs: Mapping[str, FanOut], lanes: Collection[str]) -> None:
    """
    Raises:
        PydanticCustomError: with every name that is a lane's too, and every lane that there is not.
    """
    problems = [problem for name, one in fan_outs.items() for problem in _problems(name, one, lanes)]
    if problems:
        text = "; ".join(f"{key} {valid}" for key, _, valid in problems)
        raise PydanticCustomError("several", "{text}", {"text": text, "problems": problems})


def _problems(name: str, one: FanOut, lanes: Collection[str]) -> Iterator[tuple[str, Any, str]]:
    if name in lanes:
        yield f"fan_out.{name}", None, "has the name of a lane: what is published to it would be that lane's"
    for lane in one.lanes:
        if lane not in lanes:
            known = ", ".join(sorted(lanes))
            yield f"fan_out.{name}.lanes", lane, f"must be of the lanes: {known}"
    if len(set(one.lanes)) < len(one.lanes):
        yield f"fan_out.{name}.lanes", None, "names a lane twice"
