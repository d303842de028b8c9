"""Which run a command means, and the options that several of them have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

from acklast.errors import AcklastError, Exit
from acklast.pacing.controls import Refused

RunName: TypeAlias = Annotated[str, typer.Argument(help="The run's id.")]


class NoSuchRun(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    exit = Exit.NOT_FOUND


def no_such_run(run: str) -> NoSuchRun:
    return NoSuchRun(f"the ledger knows no run {run!r}", "Check its id; 'acklast runs list' has the newest")


def labels_of(given: Sequence[str], *, may_clear: bool = False) -> dict[str, str | None]:
    """``NAME=VALUE`` options by name; None for ``NAME=``, where that takes a label away.

    Raises:
        Refused: one of them is none.
    """
    labels: dict[str, str | None] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals or not (value or may_clear):
            raise Refused(f"label {text!r} is no NAME=VALUE", "Give it like team=billing")
        labels[name] = value or None
    return labels
