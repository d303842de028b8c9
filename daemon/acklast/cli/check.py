"""``acklast check``: is everything fit to run? Every part, each with its remedy, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aio_pika.abc import AbstractConnection

from acklast.broker import BLOCKED
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.cli.servers import broker_of, faults, verified
from acklast.config import Config, load_app
from acklast.config.app import load_rows
from acklast.config.schedules import insist_on_runs
from acklast.config.secrets import masked
from acklast.errors import AcklastError, Exit
from acklast.handlers.app import App
from acklast.ledger.connect import Address, Connection, each_host
from acklast.ledger.migrate import check_schema_of
from acklast.ledger.operate import Operations
from acklast.ledger.standing import read_standing
from acklast.pacing.controls import Controls
from acklast_topology.calls import takes_nothing_in
from acklast_topology.finding import Finding, Found
from acklast_topology.sender import Sender
from acklast_topology.wire import Properties

_ASK_S: Final = 2.0
_FREE: Final = (
    "Free memory or disk on the broker's node (`rabbitmq-diagnostics alarms` says which). Until then "
    "publishers and retries wait; what is in the queues goes on"
)

PARTS: Final = (
    "configuration",
    "application",
    "schedules",
    "broker",
    "topology",
    "ledger",
    "durability",
    "schema",
    "controls",
)


@dataclass(frozen=True, slots=True)
class Checked:
    """One part's state. ``ok`` is None where it could not be looked at because of what ``detail`` names."""

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""
    exit: Exit = Exit.OK


def check(config: ConfigPath = CONFIG, as_json: Json = False) -> Exit:
    """Tell whether configuration, application, broker, topology and ledger are fit, each with its remedy.

    Changes nothing anywhere.
    """
    found = asyncio.run(_all(config))
    if as_json:
        say_json({"ok": all(one.ok for one in found), "checks": found})
    else:
        _tell(found)
    return verdict(found)


def verdict(found: Sequence[Checked]) -> Exit:
    """The exit code: first what no restart helps, then what may come back, then what is to be put right."""
    exits = {one.exit for one in found}
    order = (Exit.CONFIG, Exit.UNAVAILABLE, Exit.UNFIT)
    return next((code for code in order if code in exits), Exit.OK)


async def _all(path: Path) -> list[Checked]:
    try:
        config = configured(path)
    except AcklastError as error:
        skipped = [Checked(name, None, "not checked: the configuration cannot be used") for name in PARTS[1:]]
        return [_not_ok("configuration", error), *skipped]
    lanes = ", ".join(config.lanes)
    first = Checked("configuration", True, f"{config.path} (instance {config.instance}; lanes {lanes})")
    return [
        first,
        _application(config),
        _schedules(config),
        *await _broker(config),
        *await _ledger(config),
    ]


def _not_ok(name: str, error: AcklastError, code: Exit | None = None) -> Checked:
    return Checked(name, False, error.what, error.remedy, code or error.exit)


def _application(config: Config) -> Checked:
    try:
        app = load_app(config)
    except AcklastError as error:
        return _not_ok("application", error)
    return Checked("application", True, "; ".join(_handled(config, app)))


def _schedules(config: Config) -> Checked:
    try:
        insist_on_runs(config.schedules)
        load_rows(config)
    except AcklastError as error:
        return _not_ok("schedules", error)
    return Checked("schedules", True, ", ".join(config.schedules) or "none is configured")


def _handled(config: Config, app: App) -> Iterator[str]:
    """What does the jobs: the application's handlers, and the requests of the HTTP lanes."""
    if config.app is not None:
        types = ", ".join(f"{job.name} in {job.lane}" for job in app.jobs())
        yield f"{config.app} ({types})"
    for name, lane in config.lanes.items():
        if lane.http is not None:
            yield f"{lane.http.method} {masked(lane.http.url)} in {name}"


async def _broker(config: Config) -> list[Checked]:
    found: list[Checked] = []
    try:
        async with broker_of(config) as connection:
            shown = f"{_product(connection)} at {', '.join(config.broker.shown())}"
            found.append(Checked("broker", True, shown))
            found += await _topology(connection, config)
            # Last: a broker under an alarm reads nothing more of a connection that publishes.
            if all(one.ok for one in found) and not await _takes_in(connection, config.names.route):
                found[0] = Checked("broker", False, f"{shown}: {BLOCKED}", _FREE, Exit.UNFIT)
    except AcklastError as error:
        if found:
            return [*found, _not_ok("topology", error)]
        return [
            _not_ok("broker", error),
            Checked("topology", None, "not checked: the broker cannot be reached"),
        ]
    return found


async def _takes_in(connection: AbstractConnection, exchange: str) -> bool:
    """Whether the broker takes messages in: asked by an empty one that no queue gets."""
    # A user who may not publish is told so on the channel, and learns nothing here.
    with suppress(OSError):
        sender = await Sender.open(connection, timeout_s=_ASK_S)
        await sender.send(exchange, "check", b"", Properties(), timeout_s=_ASK_S)
    return connection.transport is None or not takes_nothing_in(connection.transport.connection)


def _product(connection: AbstractConnection) -> str:
    """``RabbitMQ 4.0.5``, by the broker's own word."""
    transport = connection.transport
    properties: Mapping[str, Any] = transport.connection.server_properties if transport else {}
    words = (properties.get(name, b"") for name in ("product", "version"))
    return " ".join(word.decode(errors="replace") if isinstance(word, bytes) else str(word) for word in words)


async def _topology(connection: AbstractConnection, config: Config) -> list[Checked]:
    plan = config.plan()
    found = await verified(connection, plan, config)
    unfit = misfits(faults(found))
    count = len(plan.exchanges) + len(plan.queues)
    here = f"all {count} exchanges and queues of namespace {config.namespace} are there"
    unseen = "".join(f"; {one.detail}" for one in found if one.status is Found.UNSEEN)
    return unfit or [Checked("topology", True, here + (unseen or ", as planned, and no policy harms them"))]


def misfits(findings: Sequence[Finding]) -> list[Checked]:
    """One line for all that have the same remedy: on a new broker that is everything."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.status, finding.remedy), []).append(finding)
    return [
        Checked("topology", False, f"{status}: {_listed(group)}", remedy, Exit.UNFIT)
        for (status, remedy), group in groups.items()
    ]


def _listed(findings: Sequence[Finding]) -> str:
    if len(findings) == 1:
        (one,) = findings
        return f"{one.kind} {one.name}{f' ({one.detail})' if one.detail else ''}"
    return ", ".join(f"{one.kind} {one.name}" for one in findings)


async def _ledger(config: Config) -> list[Checked]:
    try:
        connection = await Address.of(config.ledger.address(), allow_unsafe_server=True).open()
    except AcklastError as error:
        why = "not checked: the ledger cannot be reached"
        return [_not_ok("ledger", error), *(Checked(name, None, why) for name in PARTS[-3:])]
    try:
        server = connection.get_server_version()
        here = f"PostgreSQL {server.major}.{server.minor} at {config.ledger.shown()}"
        schema = await _schema(connection)
        controls = [await _controls(connection, config, fits=bool(schema.ok))]
        return [Checked("ledger", True, here), await _durability(config), schema, *controls]
    finally:
        connection.terminate()


async def _durability(config: Config) -> Checked:
    if config.ledger.allow_unsafe_server:
        return Checked("durability", True, "not asked for: ledger.allow_unsafe_server is set")
    try:
        connection = await Address.of(config.ledger.address()).open()
    except AcklastError as error:
        return _not_ok("durability", error, Exit.UNFIT)
    try:
        waits_for = await connection.fetchval("select current_setting('synchronous_standby_names')")
    finally:
        connection.terminate()
    kept = "the server keeps every commit (fsync and synchronous_commit are on)"
    hosts = len(each_host(config.ledger.address()))
    if hosts > 1 and not waits_for:
        kept += f", but a failover among the {hosts} hosts of the DSN can lose the last ones"
        return Checked("durability", True, kept, "Name a standby in the server's synchronous_standby_names")
    return Checked("durability", True, kept)


async def _schema(connection: Connection) -> Checked:
    try:
        await check_schema_of(connection)
    except AcklastError as error:
        return _not_ok("schema", error, Exit.UNFIT)
    return Checked("schema", True, "the schema is one that this program works on")


async def _controls(connection: Connection, config: Config, *, fits: bool) -> Checked:
    """What operators ask: nothing that is wrong, and yet the first thing to know of a lane that is still."""
    if not fits:
        return Checked("controls", None, "not checked: the schema does not fit")
    known = Controls((await read_standing(Operations(connection))).controls)
    paused = {name: known.pause(name, lane.budget, 0.0) for name, lane in config.lanes.items()}
    said = [f"{name} is paused by {one.actor}: {one.reason}" for name, one in paused.items() if one]
    return Checked("controls", True, "; ".join(said) or "no lane is paused")


def _tell(found: Sequence[Checked]) -> None:
    console = people()
    for one in found:
        word, style = {True: ("ok", "green"), False: ("not ok", "red"), None: ("-", "yellow")}[one.ok]
        console.print(f"{word:<7}", style=style, end="")
        head, *others = one.detail.split("\n")
        console.print(f"{one.name:<14} {head}")
        for problem in others:
            console.print(problem)
        if one.remedy:
            console.print(f"{'':22}{one.remedy}")
