"""A handler's result, made fit for the ledger.

The effect has happened by now, so no result is refused: one that cannot be kept is replaced by a marker
that says why. Failing the job here would repeat the effect.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import from_json, to_json

from acklast_topology.value import value

RESULT_BYTES: Final = 4096
"""The largest result that is kept, as JSON in UTF-8."""


@value
class Kept:
    """What is kept of a result, and why it is not all of it (empty where it is)."""

    value: Any
    omitted: str = ""


_NOTHING: Final = Kept(None)


def kept(value: Any) -> Kept:
    """The result as plain JSON values. Models, dataclasses, times and decimals become what JSON has."""
    if value is None:
        return _NOTHING
    try:
        encoded = to_json(value, inf_nan_mode="strings")
    except Exception:  # a serialiser of the handler's own type may raise anything
        return _omitted("not JSON")
    if len(encoded) > RESULT_BYTES:
        return _omitted("too large")
    if rb"\u0000" in encoded:
        return _omitted("holds NUL")  # jsonb refuses it, and the verdict would go down with it
    try:
        return Kept(from_json(encoded))
    except ValueError:  # it reads less deep than it writes
        return _omitted("nested too deeply")


def _omitted(why: str) -> Kept:
    return Kept({"omitted": why}, why)
