"""A forecast as people read it: a band is rounded outward, or it would end sooner than it is told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import ceil, floor
from typing import Final

from acklast.cli.forecast_view import document, lines
from acklast.cli.spans import span
from acklast.outlook.binding import Binding, Constraint
from acklast.outlook.cast import Basis, Finish, Outlook, Prospect

AT: Final = datetime(2030, 1, 1, 12, 0, 0, 600_000, tzinfo=UTC)
FINISH: Final = Finish(20.4, 18.0, 23.0, Basis.MEASURED)
FOUND: Final = Outlook(AT, (Prospect("a", None, 5, 1.0, 1.0, FINISH, Binding(Constraint.LEDGER, "")),))


def test_a_moment_of_the_band_is_told_to_the_second_that_holds_it() -> None:
    # From 12:00:18.6 to 12:00:23.6.
    assert any("12:00:18Z to 12:00:24Z" in text for text, _ in lines(FOUND, None))


def test_of_a_run_that_is_over_it_is_said_that_it_is() -> None:
    [(text, _)] = lines(Outlook(AT), None)
    assert text.startswith("nothing of the run is open")


def test_json_has_the_band_as_it_is() -> None:
    [lane] = document(FOUND, None)["lanes"]
    assert (lane["earliest_s"], lane["finish_s"], lane["latest_s"]) == (18.0, 20.4, 23.0)
    assert datetime.fromisoformat(lane["latest"]) - AT == timedelta(seconds=23)


def test_a_span_is_rounded_to_the_side_that_is_asked_for() -> None:
    assert [span(150, whole) for whole in (floor, round, ceil)] == ["2 min", "2 min", "3 min"]
    assert [span(59.4, whole) for whole in (floor, round, ceil)] == ["59 s", "59 s", "60 s"]
