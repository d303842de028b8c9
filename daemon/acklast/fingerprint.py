"""The fingerprint of a failure: the same for failures that are alike, different for others.

It is made of the reason code, of what was said (with everything that differs from job to job replaced), of
the exception's type, and of the functions of the handler's own code in which it was raised. No line number
is in it: an edit above the failing line makes no other failure of it. Dead letters are grouped by it, and a
letter that is tried again tells by it whether it failed as before.

Its first part says by which rules it was made: fingerprints of different versions are never compared. Where a
rule here changes, so does ``VERSION``, and ``docs/how-to/dead-letters.md``.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from acklast_topology.value import value

VERSION: Final = "v1"
UNKNOWN_VERSION: Final = "v0"
"""Of letters from before fingerprints had versions, where what was raised is not known any more."""
TEXT_MAX: Final = 200
"""Characters of a text that count, after its replacements: what differs lies at the beginning."""
FRAMES: Final = 2
"""Functions that count: the one that raised, and its caller."""

_READ_MAX: Final = 4096
_KEY_MIN: Final = 3
"""A shorter key is a word of the text as likely as not; its digits are replaced anyway."""
_DAY: Final = "(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*"
_MONTH: Final = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
# Of lower-case text. Every repetition is bounded or starts at a boundary: a hostile text costs no more than
# its length.
_VARIABLE: Final = re.compile(
    rf"""
      (?<!\w)'(?:[^']|(?<=\w)'(?=\w))*'(?!\w) | "[^"]*" | `[^`]*` | “[^”]*” | «[^»]*»  # quoted values
    | [0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[t ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:[.,][0-9]+)?)?
      (?:z|[ ]?[-+][0-9]{{2}}:?[0-9]{{2}})?  # ISO 8601
    | \b{_DAY},?[ ](?:[0-9]{{1,2}}[ -]{_MONTH}[ -][0-9]{{2,4}}|{_MONTH}[ ]{{1,2}}[0-9]{{1,2}})
      [ ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:[ ](?:gmt|utc|[-+]?[0-9]{{4}}\b))?  # HTTP dates, ctime
    | (?<![\w.+-])[\w.+-]{{1,64}}@[\w-]{{1,63}}(?:\.[\w-]{{1,63}})*  # mail addresses
    | (?<![0-9a-z])[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}(?![0-9a-z])  # UUIDs
    | (?<![\w:])(?=[a-f:]{{0,39}}[0-9])[0-9a-f]{{0,4}}(?::[0-9a-f]{{0,4}}){{2,7}}(?![\w:])  # IPv6
    | (?<![0-9a-z])0x[0-9a-f]+(?![0-9a-z])  # memory addresses
    | (?<![0-9a-z])(?=[a-z]*[0-9])(?=[0-9]*[a-z])[0-9a-z]{{8,}}(?![0-9a-z])  # hashes, ids
    | (?:(?<![\w.])[-+])?[0-9]+(?:[.:,-][0-9]+)*(?:e[-+]?[0-9]+)?  # numbers
    """,
    re.VERBOSE,
)
_PLACE: Final = "#"


@value
class Raised:
    """What an exception tells of a failure. ``text`` is a digest: a message may carry a provider's response.

    ``frames`` are functions of the handler's own code as ``module:function``, the one that raised first.
    """

    type: str = ""
    text: str = ""
    frames: tuple[str, ...] = ()


NOTHING: Final = Raised()
"""Nothing was raised, or what was is not known."""


def normalised(text: str, key: str | None = None) -> str:
    """The first line of ``text`` without what differs from job to job: one ``#`` for each of

    quoted values, times, mail addresses, UUIDs, IP and memory addresses, hashes and ids, numbers, and the
    job's own ``key``. In lower case, with single spaces, at most ``TEXT_MAX`` characters.
    """
    line = next((line for line in text[:_READ_MAX].splitlines() if line.strip()), "")
    if key is not None and len(key) >= _KEY_MIN and key in line:
        line = re.sub(rf"(?<!\w){re.escape(key)}(?!\w)", _PLACE, line)
    line = _VARIABLE.sub(_PLACE, line.lower())
    return " ".join(line.split())[:TEXT_MAX]


def text_digest(text: str, key: str | None = None) -> str:
    """What tells texts apart that differ in more than their values, and gives nothing of them away."""
    return _digest(normalised(text, key)) if text else ""


def fingerprint(reason: str, detail: str = "", key: str | None = None, raised: Raised = NOTHING) -> str:
    """The name of a kind of failure, such as ``v1-0f3a5c7e9b1d2f4a``. Pure, and the same on every machine.

    ``reason`` counts as it stands: it is a code. ``detail`` counts normalised. Never raises.
    """
    parts = [reason, normalised(detail, key), raised.type, raised.text, *raised.frames[:FRAMES]]
    return f"{VERSION}-{_digest(json.dumps(parts))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
