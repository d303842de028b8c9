"""The identity of a daemon: an exclusive lock on its state directory, and a random id kept there.

Only the lock proves that a predecessor is gone, and only then may its sessions be ended at once. The id is
kept in the directory because a host name proves nothing: two containers may share one.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from acklast.errors import ConfigError, InstanceLocked


class Instance:
    """Holds the lock while the context lasts; the kernel releases it with the process, however that ends."""

    def __init__(self, state_dir: Path, name: str) -> None:
        self._state_dir = state_dir
        self._name = name
        self._file = -1
        self.id = ""

    def __enter__(self) -> Self:
        """Take the lock.

        Raises:
            InstanceLocked: another daemon holds it.
            ConfigError: the state directory cannot be used.
        """
        path = self._state_dir / f"{self._name}.lock"
        try:
            self._state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(
                f"state_dir {self._state_dir} cannot be used: {error.strerror}",
                "Name a directory that this user may write in: state_dir in the configuration.",
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise InstanceLocked(
                f"another daemon runs as instance {self._name!r} with state directory {self._state_dir}",
                "Stop it first, or give this one a name of its own: --instance NAME.",
            ) from error
        self.id = self._read_or_make_id()
        return self

    def _read_or_make_id(self) -> str:
        kept = os.pread(self._file, 64, 0).decode("ascii", "replace").strip()
        if kept:
            return f"{self._name}:{kept}"
        made = uuid.uuid4().hex
        os.pwrite(self._file, f"{made}\n".encode(), 0)
        os.fsync(self._file)
        return f"{self._name}:{made}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)
