"""``acklast topology``: what is to be on the broker, shown or made."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Annotated, Final

import typer
from aio_pika.abc import AbstractConnection
from rich.console import Console
from yarl import URL

from acklast.broker import vhost_of
from acklast.cli import describing
from acklast.cli.audited import audited_if_there
from acklast.cli.changing import applied, telling
from acklast.cli.exits import epilog
from acklast.cli.lane_target import As, operator_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.cli.servers import broker_of, faults, verified
from acklast.config import Config
from acklast.errors import Exit
from acklast.moving import Tell
from acklast_topology import declare, definitions
from acklast_topology.changes import Action, Change, changes
from acklast_topology.finding import Finding, Found
from acklast_topology.plan import Plan

app = typer.Typer(help="The broker's exchanges, queues and bindings, and what publishers send to them.")
app.command("asyncapi", epilog=epilog())(describing.asyncapi)
app.command("schema", epilog=epilog())(describing.schema)

_SIGNS: Final = {
    Action.CREATE: ("+", "green"),
    Action.MIGRATE: ("~", "yellow"),
    Action.REMOVE: ("-", "yellow"),
    Action.LEAVE: (".", None),
    Action.CORRECT: ("!", "red"),
    Action.UNSEEN: ("?", None),
}


@app.command(epilog=epilog(Exit.UNFIT))
def plan(
    config: ConfigPath = CONFIG,
    offline: Annotated[
        bool, typer.Option("--offline", help="Show all that belongs there instead. Connects to nothing.")
    ] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 4 where something is to be changed.")
    ] = False,
    as_json: Json = False,
) -> Exit:
    """Show what would change on the broker, a line for each. Changes nothing."""
    settings = configured(config)
    if offline:
        return _tell_offline(settings.plan(), as_json=as_json)
    found = changes(asyncio.run(_compare(settings)))
    to_do = any(change.to_do for change in found)
    if as_json:
        say_json({"to_do": to_do, "changes": found})
    else:
        tell_changes(found)
    return Exit.UNFIT if exit_code and to_do else Exit.OK


@app.command(epilog=epilog())
def export(
    config: ConfigPath = CONFIG,
    permissions: Annotated[
        bool, typer.Option("--permissions", help="Print who needs which rights, as rabbitmqctl lines.")
    ] = False,
    as_json: Json = False,
) -> Exit:
    """Print the topology as RabbitMQ's definitions, or who needs which rights. Connects to nothing."""
    settings = configured(config)
    vhost = vhost_of(URL(settings.broker.addresses()[0]))
    if not permissions:
        # Definitions are JSON whoever reads them.
        say_json(definitions.definitions(settings.plan(), vhost))
        return Exit.OK
    wanted = definitions.permissions(settings.names)
    if as_json:
        say_json({"vhost": vhost, "permissions": wanted})
    else:
        typer.echo("\n".join(line for permission in wanted for line in permission.lines(vhost)))
    return Exit.OK


@app.command(epilog=epilog(incomplete="topology apply"))
def apply(
    config: ConfigPath = CONFIG,
    migrate: Annotated[
        bool, typer.Option("--migrate", help="Replace what differs, moving the messages that it holds.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove empty queues that nothing in the configuration names.")
    ] = False,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds for consumers to finish what they hold.")
    ] = 600.0,
    as_: As = None,
    as_json: Json = False,
) -> Exit:
    """Declare what is missing, and tell what is there but differs. Deletes and changes nothing unasked."""
    settings = configured(config)

    async def run(tell: Tell) -> list[Finding]:
        async with broker_of(settings) as connection:
            return await applied(
                connection, settings, migrate=migrate, prune=prune, longest_s=wait_s, tell=tell
            )

    with telling(quiet=as_json) as tell:
        found = asyncio.run(run(tell))
    if effect := _effect(found):
        asyncio.run(audited_if_there(settings, operator_of(as_), "topology.apply", effect))
    return _tell(found, as_json=as_json)


def _effect(found: list[Finding]) -> dict[str, list[str]]:
    """What was changed on the broker, by how."""
    changes = (Found.CREATED, Found.MIGRATED, Found.REMOVED)
    by = {how: [f"{one.kind} {one.name}" for one in found if one.status is how] for how in changes}
    return {how.value: names for how, names in by.items() if names}


@app.command(epilog=epilog())
def verify(config: ConfigPath = CONFIG, as_json: Json = False) -> Exit:
    """Look whether all is there, as planned, and safe from policies. Changes nothing."""
    found = asyncio.run(_verify(configured(config)))
    if not (as_json or any(finding.status is not Found.UNSEEN for finding in found)):
        people().print("All that can be seen is as planned, and no policy harms it.")
    return _tell(found, as_json=as_json)


async def _compare(config: Config) -> list[Finding]:
    async with broker_of(config) as connection:
        return await verified(connection, config.plan(), config, _compared)


async def _compared(connection: AbstractConnection, plan: Plan) -> list[Finding]:
    """What AMQP alone can tell. What this user may not declare is there, and more cannot be seen of it."""
    found = await declare.compare(connection, plan)
    return [finding for finding in found if finding.status is not Found.REFUSED]


async def _verify(config: Config) -> list[Finding]:
    async with broker_of(config) as connection:
        return await verified(connection, config.plan(), config)


def _tell(found: list[Finding], *, as_json: bool) -> Exit:
    """Say what was found, and whether a daemon may start on it."""
    unfit = faults(found)
    if as_json:
        say_json({"ok": not unfit, "findings": found})
    else:
        _tell_findings(found)
    return Exit.CONFIG if unfit else Exit.OK


def tell_changes(found: list[Change]) -> None:
    """Print a line for each change."""
    console = people()
    if not any(change.to_do for change in found):
        console.print("Nothing is to be changed.")
    for change, after in pairwise([*found, None]):
        assert change is not None
        sign, style = _SIGNS[change.action]
        what = f"{change.kind:<8} {change.name}: {change.detail}"
        console.print(f"{sign} {change.action:<8} {what}", style=style)
        # Many that lie together have one remedy.
        if change.remedy and (after is None or after.remedy != change.remedy):
            console.print(f"{'':20}{change.remedy}")


def _tell_offline(planned: Plan, *, as_json: bool) -> Exit:
    if as_json:
        say_json(planned)
    else:
        _tell_plan(planned)
    return Exit.OK


def _tell_plan(planned: Plan) -> None:
    console = people()
    for exchange in planned.exchanges:
        console.print(f"exchange {exchange.name} ({exchange.type})")
        _tell_arguments(console, exchange.arguments)
    for queue in planned.queues:
        console.print(f"queue    {queue.name}")
        _tell_arguments(console, queue.arguments)
    for binding in planned.bindings:
        console.print(f"binding  {binding.source} -> {binding.queue} by {binding.key or '(any key)'}")


def _tell_arguments(console: Console, arguments: object) -> None:
    for name, value in dict(arguments).items() if isinstance(arguments, dict) else ():
        console.print(f"           {name} = {value}")


def _tell_findings(found: list[Finding]) -> None:
    console = people()
    for finding in found:
        style = None if finding.fit else "red"
        detail = f": {finding.detail}" if finding.detail else ""
        console.print(f"{finding.status:<8} {finding.kind:<8} {finding.name}{detail}", style=style)
        if finding.remedy and not finding.fit:
            console.print(f"{'':18}{finding.remedy}")
