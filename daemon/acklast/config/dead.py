"""What of dead letters may be shown, and how often a job is tried again."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from acklast.config.section import Section
from acklast.redact import Redaction


def _split(value: Any) -> Any:
    """One text, as the environment has it, is paths between white space."""
    return value.split() if isinstance(value, str) else value


def _path(text: str) -> str:
    Redaction.of([text])
    return text


RedactPaths = Annotated[tuple[Annotated[str, AfterValidator(_path)], ...], BeforeValidator(_split)]
"""Places in a JSON payload that are never shown (``acklast.redact``)."""


class Dead(Section):
    """Of every lane's dead letters, and of those without a lane."""

    redact: RedactPaths = ()
    max_redrives: Annotated[int, Field(ge=1, le=1000)] = 3
    """How often one job is tried again by redrives, in all."""
