"""A dead letter as commands show it: its message only where it is asked for, and redacted."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console

from acklast.cli.output import plain, safe, second
from acklast.config import Config
from acklast.ledger.dead import Entry, Note, Whole
from acklast.ledger.trials import Trial
from acklast.redact import Redaction, redact, shown
from acklast_topology.evidence import AS_SENT

_WITHHELD: Final = "it is not JSON, and there are places to redact in it"


def redaction_of(config: Config, lane: str) -> Redaction:
    """What the configuration hides of a lane's messages."""
    own = config.lanes[lane].redact if lane in config.lanes else ()
    return Redaction.of((*config.dead.redact, *own))


def document(letter: Whole, redaction: Redaction | None) -> dict[str, Any]:
    """A letter for JSON. Without a ``redaction`` its message is left out, and so are its headers."""
    told: dict[str, Any] = {name: plain(getattr(letter.entry, name)) for name in Entry.__slots__}
    told |= {"exchange": letter.exchange, "routing_key": letter.routing_key}
    if redaction is not None:
        body = shown(letter.payload, redaction.body)
        told |= {"payload": body.text, "payload_form": body.form}
        told |= {
            "headers": redact(letter.headers, redaction.headers),
            "properties": _properties(letter, redaction),
        }
    return told


def _properties(letter: Whole, redaction: Redaction) -> dict[str, Any]:
    """Without what has the headers once more, where something of them is hidden."""
    hidden = {AS_SENT} if redaction.headers else set()
    return {name: value for name, value in letter.properties.items() if name not in hidden}


def tell(
    console: Console, letter: Whole, notes: list[Note], tried: list[Trial], redaction: Redaction | None
) -> None:
    """A letter for people."""
    entry = letter.entry
    console.print(f"dead letter {entry.id} of lane {entry.lane or '-'}: {safe(entry.reason)}")
    for name, value in _lines(letter):
        console.print(f"  {name:<13} {safe(str(value))}")
    for note in notes:
        console.print(f"  {second(note.at)} {note.actor} ({note.login}): {safe(note.text)}")
    for one in tried:
        console.print(f"  redrive {one.redrive}: {fate(one)}")
    if redaction is None:
        console.print("  its message is shown with --payload")
        return
    for kind, table in (
        ("header", redact(letter.headers, redaction.headers)),
        ("property", _properties(letter, redaction)),
    ):
        for name, value in table.items():
            console.print(f"  {kind} {safe(name)}: {safe(str(value))}")
    body = shown(letter.payload, redaction.body)
    match body.form:
        case "gone":
            console.print("  its message is gone: it was erased, or its retention is over")
        case "withheld":
            console.print(f"  its payload is not shown: {_WITHHELD}")
        case _:
            console.print(f"  payload ({body.form}):")
            for row in (body.text or "").split("\n"):
                console.print(row)


def _lines(letter: Whole) -> list[tuple[str, Any]]:
    entry = letter.entry
    lines = [
        ("detail", entry.detail),
        ("fingerprint", entry.failure),
        ("key", entry.key),
        ("run", entry.run),
        ("type", entry.type),
        ("attempts", entry.attempts),
        ("first failure", second(entry.first_failure_at)),
        ("last failure", second(entry.last_failure_at)),
        ("seen", entry.seen if entry.seen > 1 else None),
        ("worker", f"{entry.worker} ({entry.version})"),
        ("trace", entry.trace_id),
        ("routing key", letter.routing_key),
        ("content type", entry.content_type),
        ("bytes", entry.payload_bytes),
        ("job", "unresolved" if entry.held and entry.closed_at is None else None),
        ("closed", f"{second(entry.closed_at)}, {entry.closed_as}" if entry.closed_at else None),
    ]
    return [(name, value) for name, value in lines if value not in (None, "")]


def fate(one: Trial) -> str:
    """What came of a letter in a redrive."""
    match one.state:
        case "refused":
            return f"not tried: {one.refusal}"
        case "released":
            return f"at work since {second(one.released_at)}"
        case "settled":
            again = " as before" if one.new_failure is not None and one.new_failure == one.failure else ""
            why = f": {safe(one.new_reason)}  {one.new_failure}" if one.new_reason else ""
            return f"{one.outcome}{again} at {second(one.settled_at)}{why}"
        case _:
            return f"not tried yet; it failed of {safe(one.reason)}  {one.failure}"
