"""What handlers do in a simulation. Their effects are kept outside of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NoReturn

from acklast import App, Context, Permanent, RateLimited, Transient, Unknown
from harness.virtual import elapse
from simulation.account import Start
from simulation.scenario import Scenario
from simulation.schedule import Heir

if TYPE_CHECKING:
    from simulation.process import Process

FIT = ("do", "do slowly", "commit", "transient", "limited", "permanent", "unknown", "hang", "crash")
"""Everything that a handler may do here."""


HERE: ContextVar[Process] = ContextVar("HERE")
"""The process whose memory this code runs in."""


def reset(_: bool) -> NoReturn:
    """What a handler hears of a downstream that hung up."""
    raise ConnectionResetError("reset")


async def handler(payload: bytes, ctx: Context) -> Any:
    process = HERE.get()
    world = process.world
    fence, session = world.claims[process, ctx.key]
    start = Start(ctx.key, fence, process, session, ctx.ambiguous)
    acts = world.scenario.acts(ctx.key)
    act = acts[min(len(world.account.starts[ctx.key]), len(acts) - 1)]
    world.started(start)
    return await perform(act, process, start, ctx)


async def reconcile(payload: bytes, ctx: Context) -> bool | None:
    process = HERE.get()
    world = process.world

    async def look() -> bool:
        return world.account.effects(ctx.key) > 0

    found = await world.step(process, f"look for {ctx.key}", look, lost=reset)
    return found if world.scenario.reconcile == "truth" else None


def _app(reconcile: Callable[..., Any] | None) -> App:
    app = App()
    app.job("work.v1", lane="work", reconcile=reconcile)(handler)
    return app


_APPS: Final = {True: _app(reconcile), False: _app(None)}


def app_for(scenario: Scenario) -> App:
    """The application, made once: what differs between processes is ``HERE``."""
    return _APPS[bool(scenario.reconcile)]


async def perform(act: str, process: Process, start: Start, ctx: Context) -> Any:
    """One act of a handler, up to its outcome."""
    match act:
        case "do":
            await effect(process, start)
        case "do slowly":
            await elapse(10)
            await effect(process, start)
            await elapse(10)
        case "commit":
            async with ctx.transaction({"committed": ctx.key}) as effects:
                effects.append(start)
        case "transient":
            raise Transient("not_now")
        case "limited":
            raise RateLimited(6)
        case "permanent":
            raise Permanent("refused")
        case "unknown":
            await effect(process, start)
            raise Unknown("no_answer")
        case "hang":
            await effect(process, start)
            await asyncio.Event().wait()
        case "crash":
            process.world.crash(process, Heir.SAME)
            await process.breathe()
        case _:
            raise AssertionError(f"no act is called {act!r}")
    return {"done": ctx.key}


async def effect(process: Process, start: Start) -> None:
    """The side effect itself: a call to somebody else, whose answer may be lost."""

    async def act() -> None:
        start.effect = True

    await process.world.step(process, f"effect {start.key}", act, lost=reset)
