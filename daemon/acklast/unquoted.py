"""What may be told of an error: its text may quote a value, and what is stored or logged holds none. Pure.

Postgres shows the value that it cannot read, a driver the argument that does not fit, ``int()`` what is no
number. So a text is told only where it is known to have none: of our own errors, of connections, of the
operating system, and of those classes of Postgres' that speak of names and of the server.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from typing import Any, Final

from acklast.errors import AcklastError

_PLAIN_STATES: Final = ("08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58")
"""Classes of SQLSTATE whose messages have no value of a row: connections, roles, names, syntax, resources."""
_PLAIN_MODULES: Final = frozenset(
    {"acklast", "acklast_topology", "builtins", "asyncio", "aiormq", "aio_pika", "socket", "ssl"}
)
_QUOTING: Final = (ValueError, LookupError)
"""Of Python's own errors, those that show what they were given."""
_ARGUMENT: Final = re.compile(r"invalid input for query argument \$\d+")


def unquoted(error: BaseException) -> str:
    """The error in one line: a text of ours as it is, else its type with what may be told of it."""
    if isinstance(error, AcklastError):
        return error.what
    name, text = type(error).__name__, _text(error)
    return f"{name}{text if text.startswith(' (') else f': {text}' if text else ''}"


def _text(error: BaseException) -> str:
    root = type(error).__module__.partition(".")[0]
    if root == "asyncpg":
        return _of_postgres(error)
    quotes = isinstance(error, _QUOTING) and root == "builtins"
    return "" if quotes or root not in _PLAIN_MODULES else _str(error)


def _of_postgres(error: Any) -> str:
    if found := _ARGUMENT.match(_str(error)):
        return found[0]
    state = getattr(error, "sqlstate", None)
    if state is None:  # the driver's own
        return "" if isinstance(error, ValueError) else _str(error)
    if str(state).startswith(_PLAIN_STATES):
        return _str(error).partition("\n")[0]
    position = getattr(error, "position", None)
    where = f", at character {position} of the statement" if position else ""
    return f" ({state}{where})"


def _str(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # its own __str__ is broken
        return ""


def unquoted_traceback(error: BaseException) -> str:
    """Where it came from, with what it came of, as Python shows it; without values."""
    return "\n".join(_lines(error, set()))


def _lines(error: BaseException, seen: set[int]) -> Iterator[str]:
    for number, one in enumerate(reversed(_chain(error, seen))):
        if number:
            yield "\nwhich led to:\n"
        yield "Traceback (most recent call last):"
        for frame in traceback.format_tb(one.__traceback__):
            yield frame.rstrip("\n")
        yield unquoted(one)
        if isinstance(one, BaseExceptionGroup):
            for part in one.exceptions:
                if id(part) not in seen:
                    yield from _lines(part, seen)


def _chain(error: BaseException, seen: set[int]) -> list[BaseException]:
    """It, and what it came of. A loop that tries again has each error come of the last one: not by calls that
    are as deep as that."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        chain.append(at)
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return chain
