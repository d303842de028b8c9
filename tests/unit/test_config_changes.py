"""Of a changed configuration, what a running daemon follows, what waits, and that no key is undecided."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from acklast.config import Config, Quota
from acklast.config.changes import KEYS, Change, Changes, When, diff, merged
from acklast.config.section import Section
from harness.configs import GOOD, read

LANE = "[lanes.rent-reminders]\nconcurrency = 3\n"
BUDGET = '[budgets.property-api]\nquota = "50 per 1 s"\n'
HTTP = '[lanes.rent-reminders.http]\nurl = "http://localhost/{{{{key}}}}"\ntimeout_s = {}\n'


def models_in(annotation: Any) -> Iterator[type[Section]]:
    """The tables that a key may hold."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


@pytest.mark.parametrize("model", KEYS, ids=lambda model: model.__name__)
def test_every_key_is_decided(model: type[Section]) -> None:
    fields = model.model_fields
    assert set(KEYS[model]) == set(fields)
    for name, when in KEYS[model].items():
        below = list(models_in(fields[name].annotation))
        if when is When.WITHIN:
            assert below
            assert set(below) <= set(KEYS), f"{name}: its own keys are to be decided"
        else:
            assert when is When.RESTART or not below, f"{name} is a table: say WITHIN"


def changes(tmp_path: Path, old: str, new: str) -> Changes:
    return diff(read(tmp_path, old), read(tmp_path, new))


LIVE: list[tuple[str, str, str, Any, Any]] = [
    ("concurrency = 3", "concurrency = 5", "lanes.rent-reminders.concurrency", 3, 5),
    (LANE, LANE + "weight = 2.0\n", "lanes.rent-reminders.weight", 1.0, 2.0),
    (LANE, LANE + "prefetch = 50\n", "lanes.rent-reminders.prefetch", 1000, 50),
    (LANE, LANE + "timeout_s = 5\n", "lanes.rent-reminders.timeout_s", 60.0, 5.0),
    (LANE, LANE + 'on_unknown = "hold"\n', "lanes.rent-reminders.on_unknown", "retry", "hold"),
    (LANE, LANE + 'redact = ["$.name"]\n', "lanes.rent-reminders.redact", [], ["$.name"]),
    ("50 per 1 s", "10 per 1 s", "budgets.property-api.quota", "50 per 1 s", "10 per 1 s"),
    (BUDGET, BUDGET + "headroom = 0.5\n", "budgets.property-api.headroom", 0.0, 0.5),
    (GOOD, GOOD + '[log]\nlevel = "debug"\n', "log.level", "info", "debug"),
    (GOOD, GOOD + "[drain]\ndeadline_s = 3\n", "drain.deadline_s", 30.0, 3.0),
]


@pytest.mark.parametrize(("old", "new", "key", "was", "now"), LIVE, ids=[one[2] for one in LIVE])
def test_what_is_followed_is_told_with_both_values(
    tmp_path: Path, old: str, new: str, key: str, was: Any, now: Any
) -> None:
    found = changes(tmp_path, GOOD, GOOD.replace(old, new))
    assert {change.key: change.shown() for change in found.live} == {key: {"old": was, "new": now}}
    assert (found.connection, found.restart) == ((), ())


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("[ledger]", "heartbeat_s = 5\n[ledger]", ["broker.heartbeat_s"]),
        (GOOD, f'namespace = "other"\n{GOOD}', ["namespace"]),
        (GOOD, f'version = "2"\n{GOOD}', ["version"]),
        ("handlers:app", "handlers:other", ["app"]),
        (GOOD, GOOD + "[lanes.more]\n", ["lanes.more"]),
        (LANE, "", ["lanes.rent-reminders"]),
        (GOOD, GOOD + '[budgets.more]\nquota = "1 per 1 s"\n', ["budgets.more"]),
        (BUDGET, BUDGET + "concurrency = 3\n", ["budgets.property-api.concurrency"]),
        (
            BUDGET,
            BUDGET + "[budgets.property-api.breaker]\nafter = 3\n",
            ["budgets.property-api.breaker.after"],
        ),
        (LANE, LANE + 'fair_by = "run"\n', ["lanes.rent-reminders.fair_by"]),
        (GOOD, GOOD + '[fan_out.all]\nlanes = ["cleanup"]\n', ["fan_out"]),
        (GOOD, GOOD + "[dead]\nmax_redrives = 5\n", ["dead.max_redrives"]),
    ],
)
def test_what_waits_for_a_restart_is_named(tmp_path: Path, old: str, new: str, keys: list[str]) -> None:
    before = read(tmp_path)
    after = read(tmp_path, GOOD.replace(old, new))
    assert diff(before, after) == Changes(restart=tuple(keys))
    assert diff(before, merged(before, after)) == Changes()


def test_a_secret_is_read_at_the_next_connection_and_never_told(tmp_path: Path) -> None:
    found = changes(tmp_path, GOOD, GOOD.replace("s3cret", "n3w"))
    assert found == Changes(connection=("broker.urls", "ledger.dsn"))


def test_all_that_needs_no_restart_is_taken_and_nothing_else(tmp_path: Path) -> None:
    old = read(tmp_path, GOOD.replace(BUDGET, BUDGET + "concurrency = 9\n"))
    text = GOOD.replace(BUDGET, BUDGET.replace("50", "20") + "concurrency = 4\nburst = 2\n")
    new = read(
        tmp_path, text.replace("concurrency = 3", "concurrency = 7") + "[lanes.more]\n[relay]\npoll_s = 9\n"
    )
    taken = merged(old, new)
    assert taken.budgets["property-api"] == old.budgets["property-api"].model_copy(
        update={"quota": Quota(20, 1.0), "concurrency": 4}
    )
    assert list(taken.lanes) == ["cleanup", "rent-reminders"]
    assert taken.lanes["rent-reminders"].concurrency == 7
    assert taken.path == old.path
    assert diff(taken, new) == Changes(
        restart=("relay.poll_s", "budgets.property-api.burst", "lanes.more")
    ), "what waits is told again, and what was taken is not"


def test_a_lane_whose_request_changes_waits_as_a_whole(tmp_path: Path) -> None:
    old, new = (GOOD + HTTP.format(seconds) for seconds in (50, 5))
    found = changes(tmp_path, old, new.replace(LANE, LANE + "timeout_s = 5\n"))
    assert found == Changes(restart=("lanes.rent-reminders.timeout_s", "lanes.rent-reminders.http"))


def test_the_same_is_no_change(tmp_path: Path) -> None:
    assert changes(tmp_path, GOOD, GOOD) == Changes()
    assert Change("key", Quota(1, 2.0), ("a",)).shown() == {"old": "1 per 2 s", "new": ["a"]}


def test_the_page_names_all_that_is_followed() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/configuration.md").read_text()
    section = page.partition("## Reload")[2].partition("\n## ")[0]
    followed = [f"`{name}`" for keys in KEYS.values() for name, when in keys.items() if when is When.LIVE]
    assert [name for name in followed if name not in section] == []


def test_every_model_is_reached() -> None:
    """A table that only hangs below one that waits needs no keys of its own here."""
    waiting = {Config} | {
        below
        for model in KEYS
        for field in model.model_fields.values()
        for below in models_in(field.annotation)
    }
    assert {model.__name__ for model in waiting - set(KEYS)} == {"FanOut", "Http", "Schedule"}
