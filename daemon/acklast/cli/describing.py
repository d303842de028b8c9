"""``acklast topology asyncapi`` and ``schema``: the contract and the lanes for other programs to read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from yarl import URL

from acklast import __version__
from acklast.asyncapi import Place, Side, document
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json
from acklast.cli.whole_file import whole_file
from acklast.config import Config
from acklast.config.app import load_app
from acklast.errors import AcklastError, Exit
from acklast.handlers.payload_schema import payload_schema
from acklast_topology.contract_schema import DIALECT, contract_schema

Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write it there instead of printing it.")
]


class Unsuited(AcklastError):  # noqa: N818 - named for what is true, not for being an error
    """An option names what is not there."""

    exit = Exit.USAGE


def asyncapi(
    config: ConfigPath = CONFIG,
    side: Annotated[
        Side, typer.Option("--side", help="Whose document: the daemon receives what a publisher sends.")
    ] = Side.DAEMON,
    out: Out = None,
    as_json: Json = False,
) -> Exit:
    """Print the lanes as an AsyncAPI 3.0 document, payloads included. Connects to nothing."""
    settings = configured(config)
    app = load_app(settings)
    lanes = {lane: [job for job in app.jobs() if job.lane == lane] for lane in settings.lanes}
    made = document(_place(settings), lanes, settings.fan_outs, side=side, version=__version__)
    return _give(made, out, as_json=as_json)


def schema(
    type_: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="The payload of this job type instead.")
    ] = None,
    config: ConfigPath = CONFIG,
    out: Out = None,
    as_json: Json = False,
) -> Exit:
    """Print the contract as a JSON Schema, or that of one job type's payload. Connects to nothing."""
    made = contract_schema() if type_ is None else _payload_of(configured(config), type_)
    return _give(made, out, as_json=as_json)


def _place(config: Config) -> Place:
    return Place(config.names, tuple(URL(url) for url in config.broker.addresses()))


def _payload_of(config: Config, name: str) -> dict[str, Any]:
    jobs = {job.name: job for job in load_app(config).jobs()}
    if name not in jobs:
        raise Unsuited(
            f"no handler has the job type {name!r}",
            f"Name one of these: {', '.join(jobs)}" if jobs else "The application has no handlers",
        )
    payload = payload_schema(jobs[name])
    # A schema that allows everything, and says why it says no more.
    return {
        "$schema": DIALECT,
        **({"description": payload.note} if payload.schema is None else payload.schema),
    }


def _give(made: dict[str, Any], out: Path | None, *, as_json: bool) -> Exit:
    if out is None and as_json:
        say_json(made)
        return Exit.OK
    # In ASCII: what stands for a character that cannot be seen is to be seen.
    text = json.dumps(made, indent=2) + "\n"
    if out is None:
        sys.stdout.write(text)
    else:
        with whole_file(out) as file:
            file.write(text)
        if as_json:
            say_json({"file": str(out)})
        else:
            people().print(f"written to {out}")
    return Exit.OK
