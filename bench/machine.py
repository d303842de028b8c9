"""On what a run was measured. Ratios travel between machines, absolute figures do not."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import asyncpg

from bench.servers import Servers

_LIBRARIES: Final = (
    *("acklast", "aio-pika", "aiormq", "asyncpg", "uvloop"),
    *("celery", "dramatiq", "faststream", "taskiq", "taskiq-aio-pika"),
)
_SETTINGS: Final = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size")


def cpu_model(cpuinfo: str) -> str:
    """The processor's name out of /proc/cpuinfo."""
    names = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


def memory_gb(meminfo: str) -> float:
    """The machine's memory out of /proc/meminfo."""
    sizes = (int(line.split()[1]) for line in meminfo.splitlines() if line.startswith("MemTotal:"))
    return round(next(sizes, 0) / 1024**2, 1)


async def describe(servers: Servers) -> dict[str, str]:
    """The machine, the servers and the libraries, each a line."""
    overview = servers.management.call("GET", "overview")
    connection = await asyncpg.connect(servers.dsn)
    settings = {name: await connection.fetchval(f"show {name}") for name in _SETTINGS}
    await connection.close()
    postgres = settings.pop("server_version")
    return {
        "processor": f"{cpu_model(_read('/proc/cpuinfo'))}, {len(os.sched_getaffinity(0))} cores for all",
        "memory": f"{memory_gb(_read('/proc/meminfo'))} GB",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "rabbitmq": f"{overview['rabbitmq_version']} on Erlang {overview['erlang_version']}",
        "postgres": f"{postgres} ({', '.join(f'{name} {value}' for name, value in settings.items())})",
        "libraries": ", ".join(f"{name} {found}" for name in _LIBRARIES if (found := _version(name))),
    }


def _read(path: str) -> str:
    return Path(path).read_text()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
