"""What every part of the configuration has in common."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

LONGEST_S: Final = 100 * 366 * 86_400.0
"""A hundred years. What is added to a time must not lead out of the calendar: that would fail in use."""

PositiveS = Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]


class Section(BaseModel):
    """A table: its values stay as they are, and a key that it does not know is an error."""

    # hide_input_in_errors: a secret of the wrong type must not come back in pydantic's own text.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
