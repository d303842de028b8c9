"""The faults of the drill: each module of this package registers its own by ``base.kind``."""

from importlib import import_module
from pkgutil import iter_modules

from bench.fault_kinds.base import KINDS, Fault, Scene

__all__ = ["KINDS", "Fault", "Scene"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
