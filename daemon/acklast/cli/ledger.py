"""``acklast ledger``: the Postgres schema, and what is kept in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from acklast.cli import erase, prune
from acklast.cli.audited import audited_if_there
from acklast.cli.exits import epilog
from acklast.cli.lane_target import As, operator_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.errors import Exit
from acklast.ledger import migrate as migrations
from acklast.ledger.roles import PREFIX, roles_of

app = typer.Typer(help="The ledger in Postgres: its schema, and what is kept.")
app.command("prune", epilog=epilog(incomplete="ledger prune"))(prune.prune)
app.command("erase", epilog=epilog(Exit.NOT_FOUND, incomplete="ledger erase"))(erase.erase)


@app.callback()
def _group() -> None:
    """The ledger in Postgres: its schema, and what is kept."""


@app.command(epilog=epilog())
def migrate(
    roles: Annotated[
        bool, typer.Option("--roles", help="Also make the SQL roles for daemon, operator and reader.")
    ] = False,
    roles_prefix: Annotated[
        str, typer.Option("--roles-prefix", help="What their names begin with, before _daemon and so on.")
    ] = PREFIX,
    as_: As = None,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Bring the schema up to this program. Several at once are safe; running it again changes nothing."""
    settings = configured(config)
    names = list(roles_of(roles_prefix).values()) if roles else []
    applied = asyncio.run(migrations.migrate(settings.ledger.address(), roles_prefix if roles else None))
    done = {"applied": applied, "roles": names}
    if effect := {name: value for name, value in done.items() if value}:
        asyncio.run(audited_if_there(settings, operator_of(as_), "ledger.migrate", effect))
    if as_json:
        say_json(done)
    else:
        _tell(applied, names)
    return Exit.OK


def _tell(applied: Sequence[str], roles: Sequence[str]) -> None:
    console = people()
    for name in applied:
        console.print(f"applied {name}")
    if not applied:
        console.print("the schema is up to date")
    for role in roles:
        console.print(f"role {role} has its rights; grant it to whoever logs in")
