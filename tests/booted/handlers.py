"""What the daemon in the container runs: a job's payload says what its handler does."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from acklast import App, Context

app = App()
STATE = Path(os.environ.get("STATE_DIRECTORY", "/nowhere"))


async def gate(name: str) -> None:
    """Wait until the test opens it."""
    while not (STATE / name).exists():
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.Event().wait()


def refusal_of(path: str, *, write: bool) -> str:
    """Why a file cannot be read or written; nothing where it can."""
    try:
        with Path(path).open("a" if write else "r"):
            return ""
    except OSError as error:
        return type(error).__name__


def look() -> dict[str, Any]:
    """What can be done from in here."""
    forbidden = ("/etc/acklast/x", "/opt/acklast/x", "/var/lib/x", "/srv/x", "/root/x", "/dev/x", "/x")
    resolved = socket.getaddrinfo("localhost", 5672, type=socket.SOCK_STREAM)
    return {
        "written": [path for path in forbidden if not refusal_of(path, write=True)],
        "secret": refusal_of("/etc/acklast/broker-url", write=False),
        "state": refusal_of(f"{STATE}/made", write=True),
        "tmp": refusal_of("/tmp/acklast-made", write=True),
        "processes": sum(path.name.isdigit() for path in Path("/proc").iterdir()),
        "resolved": bool(resolved),
        "authorities": len(ssl.create_default_context().get_ca_certs()) > 0,
        "user": os.getuid(),
        "thread": threading.current_thread() is not threading.main_thread(),
    }


@app.job("look.v1", lane="work")
def look_around(payload: dict[str, Any]) -> dict[str, Any]:
    """In a thread."""
    return look()


@app.job("step.v1", lane="work")
async def step(payload: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Do what the payload says."""
    first = STATE / f"{ctx.key}.first"
    again = first.exists()
    first.touch()
    match payload:
        case {"wait": name}:
            await gate(name)
        case {"block": True} if not again:
            threading.Event().wait(300)
    return {"again": again, "attempt": ctx.attempt}
