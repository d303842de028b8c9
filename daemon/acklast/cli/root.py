"""The command line as a whole: its groups, its errors, its exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final

import asyncpg
import typer

from acklast import __version__
from acklast.cli import (
    audit,
    check,
    daemon,
    dead,
    enqueue,
    forecast,
    jobs,
    lanes,
    ledger,
    redrive,
    relay,
    runs,
    schedule,
    scheduler,
    top,
    topology,
    unresolved,
    why,
    workers,
)
from acklast.cli.exits import INTERRUPTED, UNREAD, epilog
from acklast.cli.options import Json
from acklast.cli.output import complain, say_json
from acklast.cli.standard import drop_output
from acklast.errors import AcklastError, Exit
from acklast.unquoted import unquoted_traceback

_MAY_NOT: Final = (
    "Use one with the role that may: readers look, operators change, daemons work, and prune; "
    "'acklast ledger migrate --roles' makes them"
)

app = typer.Typer(
    name="acklast",
    help="A RabbitMQ consumer daemon that records every job in Postgres before it acks.",
    epilog=epilog(*Exit),
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", epilog=epilog(Exit.CUT))(daemon.run)
app.command("relay", epilog=epilog())(relay.relay)
app.command("scheduler", epilog=epilog())(scheduler.scheduler)
app.command("check", epilog=epilog(Exit.UNFIT))(check.check)
app.command("audit", epilog=epilog())(audit.audit)
app.command("top", epilog=epilog())(top.top)
app.command("why", epilog=epilog(Exit.NOT_FOUND, Exit.UNFIT))(why.why)
app.command("forecast", epilog=epilog(Exit.NOT_FOUND, Exit.AT_RISK, Exit.LATE))(forecast.forecast)
app.command("enqueue", epilog=epilog(Exit.DATA, incomplete="enqueue"))(enqueue.enqueue)
app.add_typer(topology.app, name="topology")
app.add_typer(ledger.app, name="ledger")
app.add_typer(jobs.app, name="jobs")
app.add_typer(runs.app, name="runs")
app.add_typer(dead.app, name="dead")
app.add_typer(redrive.app, name="redrive")
app.add_typer(unresolved.app, name="unresolved")
app.add_typer(lanes.app, name="lanes")
app.add_typer(workers.app, name="workers")
app.add_typer(schedule.app, name="schedule")


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
    try:
        return _code(arguments, as_json="--json" in arguments)
    finally:
        drop_output()


def _code(arguments: Sequence[str], *, as_json: bool) -> int:
    if odd := next((one for one in arguments if not _is_text(one)), None):
        # No database takes it, so no command may get as far as one.
        remedy = "Write it in UTF-8; of a file with such a name give a link to it"
        complain(f"the argument {odd!r} is not UTF-8", remedy, Exit.USAGE, as_json=as_json)
        return Exit.USAGE
    try:
        code = int(app(list(arguments), prog_name="acklast", standalone_mode=False) or Exit.OK)
        sys.stdout.flush()
    except AcklastError as error:
        complain(error.what, error.remedy, error.exit, as_json=as_json)
        return error.exit
    except typer.TyperException as error:
        complain(error.format_message(), _usage_of(error), Exit.USAGE, as_json=as_json)
        return Exit.USAGE
    except asyncpg.InsufficientPrivilegeError as error:
        complain(f"this login may not do that in the ledger: {error}", _MAY_NOT, Exit.CONFIG, as_json=as_json)
        return Exit.CONFIG
    except (BrokenPipeError, SystemExit):  # typer makes the second of the first
        return UNREAD
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as defect:
        with suppress(OSError):  # of a service it goes to the journal, and holds no more than its log
            sys.stderr.write(f"{unquoted_traceback(defect)}\n")
        remedy = "This is a defect; please report it with the lines above"
        complain("the command failed unexpectedly", remedy, Exit.SOFTWARE, as_json=as_json)
        return Exit.SOFTWARE
    if code == INTERRUPTED:
        complain("interrupted", "What was done stays done", code, as_json=as_json)
    return code


def _is_text(argument: str) -> bool:
    return argument.encode(errors="replace").decode() == argument


def _usage_of(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"See {context.command_path if context else 'acklast'} --help"
