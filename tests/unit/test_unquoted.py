"""What is told of an error holds no value that its text quotes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Final

import asyncpg
import pytest
import structlog
from aiormq.exceptions import ChannelNotFoundEntity
from pydantic import TypeAdapter

from acklast.errors import LedgerUnavailable
from acklast.telemetry import log
from acklast.telemetry.events import Notice
from acklast.template import BadField
from acklast.unquoted import unquoted, unquoted_traceback

SECRET: Final = "planted-4711"


def postgres(state: str, text: str, position: str | None = None) -> asyncpg.PostgresError:
    fields = {"C": state, "M": text} | ({"P": position} if position else {})
    error: asyncpg.PostgresError = asyncpg.PostgresError.new(fields)
    return error


def raised(call: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of every kind
        call()
    return caught.value


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LedgerUnavailable("it is away", "wait"), "it is away"),
        (BadField("field 'id' of the key is missing"), "BadField: field 'id' of the key is missing"),
        (
            postgres("42P01", 'relation "x" does not exist'),
            'UndefinedTableError: relation "x" does not exist',
        ),
        (
            postgres("22P02", f'invalid input syntax for type integer: "{SECRET}"', "8"),
            "InvalidTextRepresentationError (22P02, at character 8 of the statement)",
        ),
        (postgres("P0001", SECRET), "RaiseError (P0001)"),
        (
            asyncpg.DataError(f"invalid input for query argument $3: {SECRET!r} (an integer is required)"),
            "DataError: invalid input for query argument $3",
        ),
        (asyncpg.InterfaceError("connection is closed"), "InterfaceError: connection is closed"),
        (ChannelNotFoundEntity("NOT_FOUND - no queue"), "ChannelNotFoundEntity: NOT_FOUND - no queue"),
        (
            ConnectionRefusedError(111, "Connection refused"),
            "ConnectionRefusedError: [Errno 111] Connection refused",
        ),
        (TimeoutError(), "TimeoutError"),
        (raised(lambda: int(SECRET)), "ValueError"),
        (raised(lambda: dict[str, int]()[SECRET]), "KeyError"),
        (raised(lambda: TypeAdapter(int).validate_python(SECRET)), "ValidationError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_text_is_told_only_where_it_quotes_nothing(error: Exception, told: str) -> None:
    assert unquoted(error) == told
    assert SECRET not in unquoted_traceback(error)


def test_a_traceback_has_its_causes_and_places_and_no_values() -> None:
    def outer() -> None:
        try:
            int(SECRET)
        except ValueError as error:
            raise ExceptionGroup("two of them", [KeyError(SECRET), RuntimeError("a defect")]) from error

    text = unquoted_traceback(raised(outer))
    assert SECRET not in text
    parts = [
        "ValueError",
        "which led to:",
        "ExceptionGroup: two of them",
        "KeyError",
        "RuntimeError: a defect",
    ]
    at = [text.index(f"\n{part}") for part in parts]
    assert at == sorted(at)
    assert "in outer" in text


def test_what_was_tried_again_and_again_is_told_too() -> None:
    def outer() -> None:
        last: Exception | None = None
        for number in range(3000):
            try:
                raise OSError(number) from last
            except OSError as error:
                last = error
        assert last is not None
        raise last

    text = unquoted_traceback(raised(outer))
    assert text.index("OSError: 0\n") < text.index("OSError: 2999")


@pytest.fixture
def _configured() -> Any:
    yield
    structlog.reset_defaults()
    logging.basicConfig(force=True)


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.usefixtures("_configured")
def test_a_defect_in_the_log_quotes_nothing(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = raised(lambda: int(SECRET))
    log.configure("info", style)(Notice("relay.defect", "error", {"exc_info": error}))
    logging.getLogger("asyncio").error("never retrieved", exc_info=error)
    text = capsys.readouterr().err
    assert SECRET not in text
    assert text.count("Traceback (most recent call last)") == 2
    if style == "json":
        assert json.loads(text.splitlines()[0])["exception"].endswith("ValueError")
