"""``acklast ledger``: the Postgres schema, and what is kept in it."""

from __future__ import annotations

import asyncio

import typer

from acklast.cli import erase, prune
from acklast.cli.audited import audited_if_there
from acklast.cli.exits import epilog
from acklast.cli.lane_target import As, operator_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.errors import Exit
from acklast.ledger import migrate as migrations

app = typer.Typer(help="The ledger in Postgres: its schema, and what is kept.")
app.command("prune", epilog=epilog(incomplete="ledger prune"))(prune.prune)
app.command("erase", epilog=epilog(Exit.NOT_FOUND, incomplete="ledger erase"))(erase.erase)


@app.callback()
def _group() -> None:
    """The ledger in Postgres: its schema, and what is kept."""


@app.command(epilog=epilog())
def migrate(as_: As = None, config: ConfigPath = CONFIG, as_json: Json = False) -> Exit:
    """Bring the schema up to this program. Several at once are safe; running it again changes nothing."""
    settings = configured(config)
    applied = asyncio.run(migrations.migrate(settings.ledger.address()))
    if applied:
        asyncio.run(audited_if_there(settings, operator_of(as_), "ledger.migrate", {"applied": applied}))
    if as_json:
        say_json({"applied": applied})
    else:
        console = people()
        for name in applied:
            console.print(f"applied {name}")
        if not applied:
            console.print("the schema is up to date")
    return Exit.OK
