"""``acklast ledger``: the Postgres schema."""

from __future__ import annotations

import asyncio

import typer

from acklast.cli.exits import epilog
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.errors import Exit
from acklast.ledger import migrate as migrations

app = typer.Typer(help="The ledger's schema in Postgres.")


@app.callback()
def _group() -> None:
    """The ledger's schema in Postgres."""


@app.command(epilog=epilog())
def migrate(config: ConfigPath = CONFIG, as_json: Json = False) -> Exit:
    """Bring the schema up to this program. Several at once are safe; running it again changes nothing."""
    applied = asyncio.run(migrations.migrate(configured(config).ledger.address()))
    if as_json:
        say_json({"applied": applied})
    else:
        console = people()
        for name in applied:
            console.print(f"applied {name}")
        if not applied:
            console.print("the schema is up to date")
    return Exit.OK
