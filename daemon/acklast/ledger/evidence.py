"""What the ledger keeps of texts that others wrote: made storable, and bounded.

Postgres refuses NUL in text and in JSON, and half a surrogate pair anywhere. One such character must not
fail the batch that it travels in, nor lose the dead letter that it belongs to: it is replaced before that.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

DETAIL_LIMIT: Final = 4096
"""Characters of detail that are kept."""
REASON_LIMIT: Final = 200

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def clean(text: str, limit: int = DETAIL_LIMIT) -> str:
    """``text`` as Postgres takes it, cut to ``limit`` characters."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text if text.isascii() and "\x00" not in text else _UNSTORABLE.sub(_REPLACEMENT, text)


def storable_json(value: Any) -> str:
    """``value`` as JSON that ``jsonb`` takes. What JSON does not know (a date, a UUID) becomes text."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
    except (TypeError, ValueError):
        text = None
    # What looks like the escape may be a backslash of the value itself: then the slow way changes nothing.
    if text is None or "\\u0000" in text or not (text.isascii() or _UNSTORABLE.search(text) is None):
        text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text


def plain(value: Any) -> Any:
    """``value`` made of what JSON and Postgres both know."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return clean(value, limit=len(value))
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {clean(str(k), limit=len(str(k))): plain(v) for k, v in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _:
            text = str(value)
            return clean(text, limit=len(text))
