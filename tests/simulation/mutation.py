"""Deliberate mistakes: one line of the product's own source changed, for as long as a context lasts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import dedent
from typing import Any
from unittest.mock import patch


@dataclass(frozen=True, slots=True)
class Mutation:
    """In the function ``name`` of ``owner`` (a module or a class) stands ``new`` where ``old`` was."""

    owner: Any
    name: str
    old: str
    new: str
    scenario: str
    """The scenario whose faults must bring the mistake to light."""

    @contextmanager
    def made(self) -> Iterator[None]:
        function = getattr(self.owner, self.name)
        source = dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{self.name} has changed: put this mutation right"
        # This module's own future import goes with it: annotations stay text, as in the product's modules.
        code = compile(source.replace(self.old, self.new), inspect.getfile(function), "exec")
        scope: dict[str, Any] = {}
        exec(code, function.__globals__, scope)
        with patch.object(self.owner, self.name, scope[function.__name__]):
            yield
