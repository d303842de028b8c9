"""The reference names every key, every fate and every JSON key: who reads it alone can use the commands."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import BaseModel

from acklast.cli.check import PARTS, Checked
from acklast.cli.forecast_view import document as forecast_document
from acklast.cli.lane_view import LaneView, document
from acklast.cli.lane_why import Because, State
from acklast.cli.prune import Account
from acklast.cli.runs import account
from acklast.cli.schedule import Listed, entry_of
from acklast.cli.schedule_target import moment_of
from acklast.cli.tally import Item
from acklast.cli.timeline import Moment
from acklast.cli.top_view import BudgetRow, LaneRow, RunRow, Shot
from acklast.cli.why_reason import Answer, Code, Need, Position
from acklast.cli.why_reason import Reason as WhyReason
from acklast.config.dead import Dead
from acklast.config.fan_out import FanOut
from acklast.config.health import Health
from acklast.config.http import Http
from acklast.config.models import Breaker, Budget, Config, Drain, Lane, Log, Relay
from acklast.config.schedules import Schedule
from acklast.config.servers import Broker, LedgerServer
from acklast.lane_queues import Queues
from acklast.ledger.api import JobView, RunView
from acklast.ledger.audit import Entry as AuditEntry
from acklast.ledger.controls import Control
from acklast.ledger.dead import Entry as DeadEntry
from acklast.ledger.dead import Group, Note, Whole
from acklast.ledger.dead_changes import Dropped
from acklast.ledger.erase import Erased, Left
from acklast.ledger.operate import Audited
from acklast.ledger.reconciling import Effect
from acklast.ledger.reconciling import Found as ReconcileFound
from acklast.ledger.redrive_plan import EXCLUDED, Kind, Preview
from acklast.ledger.redrives import Redrive
from acklast.ledger.retention import COUNTS
from acklast.ledger.schedules import FiringView, Paused
from acklast.ledger.schedules import Standing as ScheduleStanding
from acklast.ledger.standing import DaemonView
from acklast.ledger.trials import Trial
from acklast.ledger.unresolved import Asked as Question
from acklast.ledger.unresolved import Held
from acklast.ledger.unresolved_changes import Refusal
from acklast.ledger.workers import State as Worker
from acklast.ledger.workers import WorkerView
from acklast.outlook.binding import Binding, Constraint
from acklast.outlook.cast import Basis, Finish, Meets, Outlook, Prospect
from acklast.reporter import Standing
from acklast_topology.finding import Finding, Found
from acklast_topology.items import Fate
from harness.controls import AT

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SECTIONS: dict[str, type[BaseModel]] = {
    "Top level": Config,
    "`[broker]`": Broker,
    "`[ledger]`": LedgerServer,
    "`[relay]`": Relay,
    "`[health]`": Health,
    "`[drain]`": Drain,
    "`[dead]`": Dead,
    "`[log]`": Log,
    "`[budgets.<name>]`": Budget,
    "`[budgets.<name>.breaker]`": Breaker,
    "`[lanes.<name>]`": Lane,
    "`[lanes.<name>.http]`": Http,
    "`[fan_out.<name>]`": FanOut,
    "`[schedules.<name>]`": Schedule,
}
# Tables of their own, and the other forms of a secret.
TABLES = {
    "broker",
    "ledger",
    "relay",
    "health",
    "drain",
    "dead",
    "log",
    "budgets",
    "breaker",
    "lanes",
    "http",
    "fan_out",
    "schedules",
}
FORMS = {"url", "url_file", "dsn_file", "sql_file"}


def keys(model: type[BaseModel]) -> set[str]:
    """The keys as a file has them."""
    return {field.alias or name for name, field in model.model_fields.items()}


LANE = set(document(LaneView("l", None, None, None, None, (), (), Queues(), None, None, (), AT, 0), "s", "w"))

_SCHEDULE = Schedule(lane="l", cron="0 7 * * *", sql="select", key="{id}")
SCHEDULE = {
    *entry_of(Listed("s", _SCHEDULE, ScheduleStanding(), None, None)),
    *moment_of("s", _SCHEDULE, AT),
}

_LANE = Prospect(
    "a", None, 0, None, None, Finish(None, None, None, Basis.UNKNOWN), Binding(Constraint.LEDGER, "")
)
_FORECAST = forecast_document(Outlook(AT, (_LANE,), (_LANE,)), None)
FORECAST = {*_FORECAST, *_FORECAST["lanes"][0], *_FORECAST["runs"][0]}


def names_of(*classes: type[DataclassInstance]) -> set[str]:
    return {field.name for one in classes for field in fields(one)}


UNSAID = {Because.OPEN, Because.IDLE, Because.NOT_DUE, Because.RUNNING, Because.STILL_RUN}
"""What holds up no job."""


def part(name: str, title: str) -> str:
    """The text below one heading."""
    text = (REFERENCE / name).read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("title", SECTIONS)
def test_the_tables_have_every_key_and_no_other(title: str) -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", part("configuration.md", title), re.MULTILINE))
    known = keys(SECTIONS[title])
    # What a fan-out has by that name is no table.
    tables = TABLES - {"lanes"} if SECTIONS[title] is FanOut else TABLES
    assert listed - (FORMS - known) == known - tables


@pytest.mark.parametrize(
    ("title", "default"),
    [
        ("`[lanes.<name>]`", "| `max_attempts` | `8` |"),
        ("`[lanes.<name>]`", "| `backoff_cap_s` | `3600` |"),
        ("`[lanes.<name>]`", '| `on_unknown` | `"retry"` |'),
        ("`[ledger]`", "| `lease_s` | `15` |"),
        ("`[budgets.<name>.breaker]`", "| `after` | `10` |"),
        ("`[lanes.<name>.http]`", "| `connect_timeout_s` | `5` |"),
        ("`[lanes.<name>.http]`", '| `idempotency_header` | `"Idempotency-Key"` |'),
        ("`[drain]`", "| `deadline_s` | `30` |"),
    ],
)
def test_defaults_are_as_the_tables_say(title: str, default: str) -> None:
    assert default in part("configuration.md", title)
    key, value = re.findall(r"`([^`]+)`", default)
    assert f"{SECTIONS[title].model_fields[key].default}".removesuffix(".0") == value.strip('"')


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("`acklast check`", {*PARTS, *(field.name for field in fields(Checked))}),
        ("`acklast topology`", {*Found, *(field.name for field in fields(Finding))}),
        ("`acklast enqueue`", {*Fate, *(field.name for field in fields(Item))}),
        ("`acklast jobs show`", {field.name for view in (JobView, Moment) for field in fields(view)}),
        ("`acklast why`", {*Code, *Need, *(set(Because) - UNSAID), *names_of(Answer, WhyReason, Position)}),
        ("`acklast ledger prune`", {*COUNTS, *(field.name for field in fields(Account))}),
        ("`acklast ledger erase`", names_of(Erased, Left)),
        ("`acklast runs show`", {*account(RunView("r", None, {}, None, 0))}),
        ("`acklast audit`", names_of(AuditEntry)),
        ("`acklast dead`", names_of(Group, DeadEntry, Whole, Note, Dropped) - {"entry"}),
        (
            "`acklast redrive`",
            {*names_of(Redrive, Trial, Kind, Preview), "out", "left", *EXCLUDED} - {"oldest"},
        ),
        (
            "`acklast unresolved`",
            {*names_of(Held, Question), *Refusal, *ReconcileFound, *Effect} - {"entry"},
        ),
        ("`acklast forecast`", {*FORECAST, *Constraint, *Meets, *Basis}),
        ("`acklast lanes`", {*LANE, *names_of(DaemonView, Control), *Standing, *State}),
        ("`acklast lanes pause, resume, set`", {*names_of(Audited)}),
        ("`acklast top`", names_of(Shot, LaneRow, RunRow, BudgetRow)),
        ("`acklast workers`", {*names_of(WorkerView), *Worker}),
        ("`acklast schedule`", {*names_of(FiringView, Paused), *SCHEDULE}),
    ],
)
def test_every_json_key_is_named(title: str, names: set[str]) -> None:
    text = part("commands.md", title)
    assert {name for name in names if f"`{name}`" not in text} == set()
