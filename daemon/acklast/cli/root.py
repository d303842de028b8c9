"""The command line as a whole: its groups, its errors, its exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from acklast import __version__
from acklast.cli import check, enqueue, jobs, ledger, runs, topology
from acklast.cli import run as run_
from acklast.cli.exits import EPILOG, INTERRUPTED
from acklast.cli.options import Json
from acklast.cli.output import complain, complain_of, say_json
from acklast.errors import AcklastError, Exit

app = typer.Typer(
    name="acklast",
    help="A RabbitMQ consumer daemon that records every job in Postgres before it acks.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", epilog=EPILOG)(run_.run)
app.command("check", epilog=EPILOG)(check.check)
app.command("enqueue", epilog=EPILOG)(enqueue.enqueue)
app.add_typer(topology.app, name="topology", epilog=EPILOG)
app.add_typer(ledger.app, name="ledger", epilog=EPILOG)
app.add_typer(jobs.app, name="jobs", epilog=EPILOG)
app.add_typer(runs.app, name="runs", epilog=EPILOG)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    as_json: Json = False,
) -> Exit:
    if context.invoked_subcommand is None:
        if not version:
            raise typer.TyperException("Missing command.")
        if as_json:
            say_json({"version": __version__})
        else:
            sys.stdout.write(f"acklast {__version__}\n")
    elif as_json:
        raise typer.TyperException("--json belongs behind the command.")
    return Exit.OK


def run(arguments: Sequence[str]) -> int:
    """Run one command line; every error becomes its lines on standard error and its exit code."""
    as_json = "--json" in arguments
    try:
        return int(app(list(arguments), prog_name="acklast", standalone_mode=False) or Exit.OK)
    except AcklastError as error:
        complain_of(error, as_json=as_json)
        return error.exit
    except typer.TyperException as error:
        complain(error.format_message(), "acklast --help lists the commands", Exit.USAGE, as_json=as_json)
        return Exit.USAGE
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted", "What was done stays done", INTERRUPTED, as_json=as_json)
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        remedy = "This is a defect; please report it with the lines above"
        complain("the command failed unexpectedly", remedy, Exit.SOFTWARE, as_json=as_json)
        return Exit.SOFTWARE
