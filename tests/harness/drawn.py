"""How many examples a property is tried with."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def drawn(few: int, many: int, **more: Any) -> settings:
    """For examples that take longer than others': how many ordinarily, and how many in the long tests."""
    found = {"few": few, "many": many}
    return settings(max_examples=found[settings.get_current_profile_name()], **more)
