"""Postgres servers of a test's own, to be broken."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from acklast.ledger.migrate import migrate
from dev.postgres import NO_SETTINGS, Cluster, mirrored
from dev.workspace import Workspace


@contextmanager
def own_cluster(settings: Mapping[str, str] = NO_SETTINGS) -> Iterator[Cluster]:
    """A server that runs."""
    with Workspace() as workspace:
        cluster = Cluster(workspace, settings=settings)
        cluster.start()
        yield cluster


@contextmanager
def own_pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary, and a standby that has each commit before the primary says that it is done."""
    with Workspace() as workspace:
        yield mirrored(workspace)


@contextmanager
def small_cluster(megabytes: int) -> Iterator[Cluster]:
    """A server on a disk of this size, where this machine lets the test make one."""
    with Workspace() as workspace:
        home = workspace.directory("postgres")
        with _small_disk(home, megabytes):
            workspace.give(home)
            cluster = Cluster(workspace, settings={"min_wal_size": "32MB", "max_wal_size": "48MB"})
            cluster.start()
            try:
                yield cluster
            finally:
                cluster.kill()


@contextmanager
def _small_disk(directory: Path, megabytes: int) -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("a disk that is full takes the right to mount one")
    options = f"size={megabytes}m,mode=0700"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", directory], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine mounts nothing")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


async def migrated(cluster: Cluster, name: str) -> str:
    """A database with the ledger's schema; its address."""
    dsn = cluster.create_database(name)
    await migrate(dsn)
    return dsn
