"""Who exports: the resource that all signals of a process have in common. Pure."""

from __future__ import annotations

from acklast.telemetry.span import Attributes
from acklast.telemetry.variables import Exporting

SCOPE = "acklast"
"""The instrumentation that all of it comes from."""


def resource_of(exporting: Exporting, *, version: str, instance: str) -> Attributes:
    """What the variables say wins. ``instance`` is the daemon's name."""
    own: dict[str, str] = {"service.version": version, "service.instance.id": instance}
    return tuple(sorted((own | dict(exporting.attributes) | {"service.name": exporting.service}).items()))
