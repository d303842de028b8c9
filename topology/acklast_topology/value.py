"""Values that are made for every job: frozen to the type checker, plain to the interpreter.

A frozen dataclass sets each field through ``object.__setattr__``, at four times the cost of an assignment.
Over the dozen values of a job's life that was an eighth of its whole time. What freezing guards against
(somebody assigns to a field) mypy finds in the source, and the hash is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

C = TypeVar("C")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[C]) -> type[C]:
    """A slotted dataclass with equality and a hash, whose fields nobody assigns to."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
