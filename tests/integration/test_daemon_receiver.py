"""What a daemon reads its deliveries with: what it was told, over a library that it knows."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

import pytest

from acklast import receiver as receivers
from acklast.errors import Exit
from acklast.ledger.api import State
from harness.site import Site, scripted

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]


async def test_deliveries_are_read_as_configured(new_site: NewSite, receiver: str) -> None:
    """The proof that each test of a daemon ran on the receiver in its name."""
    async with new_site() as place:
        with place.daemon() as daemon:
            await daemon.says("lane.consuming", receiver=receiver)
            await place.publish(scripted("read", "transient", "done"))
            await place.reaches("read", State.DONE)
            assert await daemon.drained() == Exit.OK
        assert daemon.said("receiver.fallback") == []


async def test_over_an_unknown_library_deliveries_are_read_by_the_library(
    new_site: NewSite, receiver: str, tmp_path: Path
) -> None:
    """Neither a refusal nor a guess: the daemon works, and says that it does not do as it was told."""
    path = os.pathsep.join((str(library_of("8.0.0", tmp_path)), *_harness_path()))
    async with new_site() as place:
        with place.daemon(env={"PYTHONPATH": path}) as daemon:
            await daemon.says("lane.consuming", receiver="library")
            await place.publish(scripted("read", "transient", "done"))
            await place.reaches("read", State.DONE)
            assert await daemon.drained() == Exit.OK
        said = daemon.said("receiver.fallback", level="warning", aiormq="8.0.0", known="7.x")
        assert len(said) == (1 if receiver == "bulk" else 0)


def library_of(version: str, directory: Path) -> Path:
    """A directory that makes the installed library tell this version, if it comes first in the path."""
    told = directory / "told"
    metadata = told / f"aiormq-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: aiormq\nVersion: {version}\n")
    return told


def _harness_path() -> tuple[str, ...]:
    tests = Path(__file__).parents[1]
    return str(tests), str(tests.parent)


@pytest.mark.parametrize(
    ("installed", "known"),
    [("7.0.0", True), ("7.2.4", True), ("7.10", True), ("6.9.1", False), ("8.0.0", False), ("70.1", False)],
)
def test_what_is_known_of_the_library(monkeypatch: pytest.MonkeyPatch, installed: str, known: bool) -> None:
    monkeypatch.setattr(receivers, "version", lambda name: {"aiormq": installed}[name])
    assert receivers.knows_library() is known
