"""Says on standard error how far a run is: some of its parts take minutes."""

from __future__ import annotations

from time import monotonic

from rich.console import Console


class Progress:
    """Counts the steps of one table after another."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = monotonic()
        self._name = ""
        self._steps = self._done = 0

    def begin(self, name: str, steps: int) -> None:
        """A table of so many steps comes next."""
        self._name, self._steps, self._done = name, steps, 0

    def step(self, what: str) -> None:
        """One more step is done, and this is what it showed."""
        self._done += 1
        self._line(f"{self._name} {self._done}/{self._steps}", what)

    def say(self, what: str) -> None:
        """Something else that takes its time."""
        self._line(self._name, what)

    def _line(self, where: str, what: str) -> None:
        elapsed_s = int(monotonic() - self._began)
        clock = f"{elapsed_s // 60:3}:{elapsed_s % 60:02}"
        self._console.print(f"{clock}  {where}  {what}", markup=False, highlight=False)
