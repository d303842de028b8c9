"""What processes cost, read from /proc: processor time and memory of a process and all its descendants."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_LISTEN: Final = "0A"


@dataclass(frozen=True, slots=True)
class Stat:
    """The part of /proc/PID/stat that counts here. ``ticks`` include those of children that have ended."""

    pid: int
    parent: int
    ticks: int


def parse_stat(text: str) -> Stat:
    """Read one /proc/PID/stat. The command's name may hold spaces and parentheses."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Stat(int(head.split()[0]), int(fields[1]), sum(int(field) for field in fields[11:15]))


def descendants(stats: Iterable[Stat], roots: Iterable[int]) -> set[int]:
    """The roots that run, and all processes below them."""
    children: dict[int, list[int]] = {}
    running: set[int] = set()
    for stat in stats:
        running.add(stat.pid)
        children.setdefault(stat.parent, []).append(stat.pid)
    found: set[int] = set()
    open_ = [root for root in roots if root in running]
    while open_:
        pid = open_.pop()
        if pid not in found:
            found.add(pid)
            open_ += children.get(pid, [])
    return found


def cpu_s(roots: Mapping[str, Iterable[int]]) -> dict[str, float]:
    """Processor seconds so far of each named tree, user and system."""
    stats = {stat.pid: stat for stat in _stats()}
    return {
        name: sum(stats[pid].ticks for pid in descendants(stats.values(), pids)) / _TICKS_PER_S
        for name, pids in roots.items()
    }


def peak_memory_bytes(roots: Iterable[int]) -> int:
    """The largest that each process of a tree ever was, added up. Pages that they share count for each."""
    return sum(_peak_of(pid) for pid in descendants(_stats(), roots))


def listeners(port: int) -> list[int]:
    """The processes of this machine that listen on a TCP port: a server, by its address."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    return [pid for pid in _pids() if sockets & _open_files(pid)]


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def _stats() -> list[Stat]:
    found = []
    for pid in _pids():
        try:
            found.append(parse_stat((_PROC / str(pid) / "stat").read_text(errors="replace")))
        except OSError:  # it ended while we were looking
            continue
    return found


def _peak_of(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _listening(port: int) -> list[str]:
    return [
        fields[9]
        for table in ("tcp", "tcp6")
        for fields in map(str.split, (_PROC / "net" / table).read_text().splitlines()[1:])
        if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port
    ]


def _open_files(pid: int) -> set[str]:
    found = set()
    try:
        for link in (_PROC / str(pid) / "fd").iterdir():
            found.add(str(link.readlink()))
    except OSError:  # it ended, or is another user's
        pass
    return found
