"""What handlers do in a simulation. Their effects are kept outside of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from acklast import App, Context, Permanent, RateLimited, Transient, Unknown
from acklast.testing.process import HERE, Process
from acklast.testing.stage import Heir
from acklast.testing.step import Step
from acklast.testing.virtual import elapse
from simulation.account import Start
from simulation.scenario import Scenario

if TYPE_CHECKING:
    from simulation.world import World

FIT = (
    "do",
    "do slowly",
    "commit",
    "transient",
    "transient slowly",
    "limited",
    "permanent",
    "unknown",
    "hang",
    "crash",
)
"""Everything that a handler may do here."""


def here() -> tuple[World, Process]:
    """The world, and the process whose memory this code runs in."""
    process = HERE.get().process
    return cast("World", process.stage), process


def reset(_: bool) -> NoReturn:
    """What a handler hears of a downstream that hung up."""
    raise ConnectionResetError("reset")


async def handler(payload: bytes, ctx: Context) -> Any:
    world, process = here()
    fence, session = world.claims[process, ctx.key]
    start = Start(ctx.key, fence, process, session, ctx.ambiguous)
    acts = world.scenario.acts(ctx.key)
    act = acts[min(len(world.account.starts[ctx.key]), len(acts) - 1)]
    world.started(start)
    return await perform(act, start, ctx)


async def reconcile(payload: bytes, ctx: Context) -> bool | None:
    world, process = here()

    async def look() -> bool:
        return world.account.effects(ctx.key) > 0

    found = await world.step(process, Step("downstream", "look for", ctx.key), look, lost=reset)
    return found if world.scenario.reconcile == "truth" else None


def _app(reconcile: Callable[..., Any] | None) -> App:
    app = App()
    app.job("work.v1", lane="work", reconcile=reconcile)(handler)
    return app


_APPS: Final = {True: _app(reconcile), False: _app(None)}


def app_for(scenario: Scenario) -> App:
    """The application, made once: what differs between processes is ``HERE``."""
    return _APPS[bool(scenario.reconcile)]


async def perform(act: str, start: Start, ctx: Context) -> Any:
    """One act of a handler, up to its outcome."""
    match act:
        case "do":
            await effect(start)
        case "do slowly":
            await elapse(10)
            await effect(start)
            await elapse(10)
        case "commit":
            async with ctx.transaction({"committed": ctx.key}) as effects:
                effects.append(start)
        case "transient slowly":
            await elapse(10)
            raise Transient("not_now")
        case "transient":
            raise Transient("not_now")
        case "limited":
            raise RateLimited(6)
        case "permanent":
            raise Permanent("refused")
        case "unknown":
            await effect(start)
            raise Unknown("no_answer")
        case "hang":
            await effect(start)
            await asyncio.Event().wait()
        case "crash":
            world, process = here()
            world.crash(process, Heir.SAME)
            await process.breathe()
        case _:
            raise AssertionError(f"no act is called {act!r}")
    return {"done": ctx.key}


async def effect(start: Start) -> None:
    """The side effect itself: a call to somebody else, whose answer may be lost."""
    world, process = here()

    async def act() -> None:
        start.effect = True

    await world.step(process, Step("downstream", "effect", start.key), act, lost=reset)
