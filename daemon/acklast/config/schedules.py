"""The table ``[schedules.<name>]``: when a run is due, whence its rows come, and what its jobs are."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from acklast.config.secrets import check_dsn, masked
from acklast.config.section import PositiveS, Section
from acklast.cron import Cron, RunTemplate, zone_of
from acklast.errors import ConfigError
from acklast.template import KeyTemplate

CALLABLE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")
_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?\Z", re.ASCII)
_LONGEST: Final = 200


class CatchUp(StrEnum):
    """What becomes of firings whose time came while no scheduler ran."""

    LATEST = "latest"
    """The latest of them fires."""
    ALL = "all"
    """All of them do, the oldest first, up to ``catch_up_limit``."""
    SKIP = "skip"
    """None does that is more than a minute late."""


def _callable(value: str) -> str:
    if CALLABLE.match(value) is None:
        raise ValueError('must be "module:callable", for example "digest:rows"')
    return value


def _zone(value: str) -> str:
    return zone_of(value).key


def _key(value: str) -> str:
    try:
        KeyTemplate.parse(value)
    except ValueError as error:
        raise ValueError(f"must be a key like '{{run}}:{{customer_id}}': it {error}") from None
    return value


def _run(value: str) -> str:
    return RunTemplate.parse(value).text


def _word(value: str) -> str:
    if not (0 < len(value) <= _LONGEST and value.isprintable() and value == value.strip()):
        raise ValueError(f"must be 1 to {_LONGEST} printable characters")
    return value


def _label(name: str) -> str:
    if _LABEL.match(name) is None:
        raise ValueError("must be 1 to 63 of A-Z, a-z, 0-9, '.', '_', '/' and '-'")
    return name


Word = Annotated[str, AfterValidator(_word)]


class Schedule(Section):
    """One schedule. ``load`` has read the files that it names, and seen that its lane is configured."""

    lane: str
    cron: str
    time_zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    sql: Annotated[str, Field(min_length=1)] | None = None
    dsn: Annotated[SecretStr, AfterValidator(check_dsn)] | None = None
    rows: Annotated[str, AfterValidator(_callable)] | None = None
    cursor: Annotated[str, Field(min_length=1)] | None = None
    key: Annotated[str, AfterValidator(_key)]
    run: Annotated[str, AfterValidator(_run)] | None = None
    type: Word | None = None
    deadline_s: PositiveS | None = None
    run_deadline_s: PositiveS | None = None
    owner: Word | None = None
    labels: Annotated[Mapping[Annotated[str, AfterValidator(_label)], Word], Field(max_length=32)] = Field(
        default_factory=dict
    )
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_limit: Annotated[int, Field(ge=1, le=10_000)] = 100
    enabled: bool = True
    page: Annotated[int, Field(ge=1, le=10_000)] = 1000
    page_timeout_s: Annotated[float, Field(ge=1, le=3600)] = 60.0

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, value: str) -> str:
        return Cron.parse(value, zone_of("UTC")).expression

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        if problems := list(self._misfits()):
            text = "; ".join(f"{key} {valid}" for key, _, valid in problems)
            raise PydanticCustomError("several", "{text}", {"text": text, "problems": problems})
        return self

    def _misfits(self) -> Iterator[tuple[str, Any, str]]:
        if (self.sql is None) == (self.rows is None):
            said = "is missing: give sql, sql_file or rows" if self.sql is None else "is given besides rows"
            yield "sql", None, said
        if self.dsn is not None and self.sql is None:
            yield "dsn", None, "is for sql alone"
        if self.sql is not None and self.cursor is None and len(self.key_template().fields) > 1:
            valid = "is missing: name a column that is different in each row, by which they are read in order"
            yield "cursor", None, valid

    def shown_dsn(self) -> str | None:
        """Where the rows are, with the password masked; None for the ledger's own database."""
        return None if self.dsn is None else masked(self.dsn.get_secret_value())

    def cursor_column(self) -> str | None:
        """The column by which rows are read in order; None where a callable goes on from no place."""
        if self.cursor is not None or self.sql is None:
            return self.cursor
        return next(iter(self.key_template().fields))

    def key_template(self) -> KeyTemplate:
        return KeyTemplate.parse(self.key)

    def when(self) -> Cron:
        """When it fires."""
        return Cron.parse(self.cron, zone_of(self.time_zone))

    def run_of(self, name: str, moment: datetime) -> str:
        """The run of the firing at ``moment``, for the schedule of this name."""
        return self._template(name).run(self.when(), moment)

    def _template(self, name: str) -> RunTemplate:
        return RunTemplate.parse(self.run or f"{name}-{self.when().period()}")

    def insist_on_runs(self, name: str, now: datetime) -> None:
        """See that each firing has a run of its own.

        Raises:
            ConfigError: two have the same.
        """
        cron = self.when()
        if twice := self._template(name).twice(cron, now):
            first, second = (cron.local(one).isoformat() for one in (twice.first, twice.second))
            raise ConfigError(
                f"schedule {name!r} would fire at {first} and at {second} as the same run {twice.run!r},"
                " and the second would come to nothing",
                f"Put more of the time into schedules.{name}.run, such as %Y-%m-%dT%H%M%z, or leave it out",
            )

    def deadline(self, moment: datetime) -> datetime | None:
        """Until when the jobs of the firing at ``moment`` may start."""
        return None if self.deadline_s is None else moment + timedelta(seconds=self.deadline_s)

    def run_deadline(self, moment: datetime) -> datetime | None:
        """When the run of that firing is to be finished."""
        return None if self.run_deadline_s is None else moment + timedelta(seconds=self.run_deadline_s)


def unknown_lanes(schedules: Mapping[str, Schedule], lanes: Collection[str]) -> None:
    """See that each schedule's lane, or fan-out, is configured.

    Raises:
        PydanticCustomError: naming those whose is not.
    """
    known = ", ".join(sorted(lanes))
    problems = [
        (f"schedules.{name}.lane", one.lane, f"must be one of the lanes and fan-outs: {known}")
        for name, one in schedules.items()
        if one.lane not in lanes
    ]
    if problems:
        text = "; ".join(f"{key} {valid}" for key, _, valid in problems)
        raise PydanticCustomError("several", "{text}", {"text": text, "problems": problems})


def insist_on_runs(schedules: Mapping[str, Schedule], now: datetime | None = None) -> None:
    """See that no schedule fires twice as one run, and that no two do.

    Raises:
        ConfigError: one does, or two do.
    """
    now = now or datetime.now(UTC)
    templates: dict[str, str] = {}
    for name, one in schedules.items():
        one.insist_on_runs(name, now)
        if one.run is None:
            continue
        if other := templates.get(one.run):
            raise ConfigError(
                f"schedules {other!r} and {name!r} have the same run {one.run!r}",
                "Give each a run of its own, or leave it out: then it begins with the schedule's name",
            )
        templates[one.run] = name
