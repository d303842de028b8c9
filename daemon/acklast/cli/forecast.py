"""``acklast forecast``: when lanes and runs are finished, how sure that is, and what holds them back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer
from rich.console import Group

from acklast.cli.forecast_view import document, lines
from acklast.cli.lane_target import operations_of
from acklast.cli.options import CONFIG, ConfigPath, Json, configured
from acklast.cli.output import people, say_json, text_of
from acklast.cli.queues import look, messages_in
from acklast.cli.run_target import no_such_run
from acklast.cli.servers import ledger_of
from acklast.cli.watching import Look, screen
from acklast.config import Config
from acklast.errors import Exit
from acklast.ledger.operate import Operations
from acklast.outlook.cast import Meets, Outlook
from acklast.outlook.gather import read_outlook
from acklast.pacing.controls import Refused

_LOOK_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Told:
    """A forecast, and why the broker could not be asked."""

    outlook: Outlook
    blind: str | None = None


def forecast(
    lane: Annotated[
        list[str] | None, typer.Option("--lane", "-l", help="Only this lane, and the runs in it; repeatable.")
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", help="Only this run, and the lane it waits for.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again every 2 seconds, until Ctrl-C.")] = False,
    config: ConfigPath = CONFIG,
    as_json: Json = False,
) -> Exit:
    """Show when every lane and open run is finished, with a band that holds four times out of five.

    The exit code tells of the runs that are shown: whether one is at risk, or misses its deadline.
    """
    read = configured(config)
    wanted = Wanted(tuple(lane or ()), run)
    if watch:
        return exit_of(asyncio.run(_watch(read, wanted, as_json=as_json)).outlook)
    told = asyncio.run(look_ahead(read, wanted))
    if as_json:
        say_json(document(told.outlook, told.blind))
    else:
        for text, style in lines(told.outlook, told.blind):
            people().print(text, style=style)
    return exit_of(told.outlook)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a forecast is to be shown; all of it without anything."""

    lanes: Sequence[str] = ()
    run: str | None = None

    def of(self, found: Outlook) -> Outlook:
        """Raises Refused where a lane is not there."""
        known = [one.lane for one in found.lanes]
        for name in self.lanes:
            if name not in known:
                raise Refused(f"there is no lane {name!r}", f"The lanes are: {', '.join(known) or 'none'}")
        runs = [one for one in found.runs if self.run in (None, one.run)]
        if self.lanes:
            runs = [one for one in runs if one.lane in self.lanes]
        lanes = self.lanes or ([one.lane for one in runs] if self.run is not None else known)
        shown = tuple(one for one in found.lanes if one.lane in lanes)
        return replace(found, lanes=shown, runs=tuple(runs))


def exit_of(found: Outlook) -> Exit:
    """What a forecast comes to for a script."""
    meets = {one.meets for one in found.runs}
    if Meets.MISSED in meets:
        return Exit.LATE
    return Exit.AT_RISK if Meets.AT_RISK in meets else Exit.OK


async def look_ahead(config: Config, wanted: Wanted) -> Told:
    """Read everything, once.

    Raises:
        LedgerUnavailable: the ledger does not answer.
        NoSuchRun, Refused: what is wanted is not there.
    """
    async with operations_of(config) as operations:
        return await _told(config, wanted, operations)


async def _told(config: Config, wanted: Wanted, operations: Operations) -> Told:
    queues, blind = await look(config, config.lanes)
    found = wanted.of(await read_outlook(operations, config, messages_in(queues)))
    if wanted.run is not None and not found.runs:
        async with ledger_of(config) as ledger:  # it is finished, or there is none
            if await ledger.run(wanted.run) is None:
                raise no_such_run(wanted.run)
    return Told(found, blind)


async def _watch(config: Config, wanted: Wanted, *, as_json: bool) -> Told:
    """Until Ctrl-C; of one run, until nothing of it is open."""
    async with operations_of(config) as operations:
        with screen(_LOOK, as_json=as_json) as show:
            while True:
                told = await _told(config, wanted, operations)
                show(told)
                if wanted.run is not None and not told.outlook.runs:
                    return told
                await asyncio.sleep(_LOOK_S)


def _picture(told: Told) -> Group:
    return Group(*(text_of(text, style or "") for text, style in lines(told.outlook, told.blind)))


_LOOK: Final[Look[Told]] = Look(
    changes=lambda told: told,
    lines=lambda told: (text for text, _ in lines(told.outlook, told.blind)),
    document=lambda told: document(told.outlook, told.blind),
    picture=_picture,
)
