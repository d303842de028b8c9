"""A redrive as commands show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any, Final

from rich.console import Console

from acklast.cli.dead_show import fate
from acklast.cli.output import plain, safe, second
from acklast.cli.redrive_given import RATE, parse_rate, shown_rate
from acklast.cli.spans import span
from acklast.ledger.redrive_plan import EXCLUDED, Preview
from acklast.ledger.redrives import Redrive, RedriveStatus
from acklast.ledger.trials import Trial

_DEFAULT_PER_S: Final = parse_rate(RATE)


def document(redrive: Redrive) -> dict[str, Any]:
    """A redrive for JSON."""
    told = {field.name: plain(getattr(redrive, field.name)) for field in fields(redrive)}
    return {**told, "out": redrive.out, "left": redrive.left}


def plan_document(redrive: Redrive, found: Preview, expires: datetime | None, missing: int) -> dict[str, Any]:
    """A plan with what it holds, for JSON."""
    told = {
        field.name: plain(getattr(found, field.name)) for field in fields(found) if field.name != "oldest"
    }
    return {
        **document(redrive),
        **told,
        "first": [one.key for one in found.first],
        "expires_at": plain(expires),
        "takes_s": redrive.letters / _DEFAULT_PER_S,
        "missing": missing,
    }


# --- for people -----------------------------------------------------------------------------------------


def headline(redrive: Redrive) -> str:
    """What it is and how it stands, in one line."""
    return f"redrive {redrive.id} of lane {redrive.lane}: {redrive.status}, {progress(redrive)}"


def progress(redrive: Redrive) -> str:
    if redrive.started_at is None:
        return f"{redrive.letters:,} letters"
    parts = [f"{redrive.done:,} done of {redrive.letters:,}"]
    parts += [f"{redrive.same:,} failed as before"] if redrive.same else []
    parts += [f"{redrive.other:,} ended otherwise"] if redrive.other else []
    parts += [f"{redrive.refused:,} not tried"] if redrive.refused else []
    parts += [f"{redrive.out:,} at work"] if redrive.out else []
    return ", ".join(parts)


def tell_plan(
    console: Console, redrive: Redrive, found: Preview, expires: datetime | None, missing: int
) -> None:
    console.print(headline(redrive))
    for kind in found.kinds:
        of = f", run {safe(kind.run)}" if kind.run else ""
        versions = ", ".join(map(safe, kind.versions))
        console.print(f"{kind.letters:>9,}  {safe(kind.reason)}  {kind.failure}{of}, by {versions}")
    if found.more:
        console.print(f"{'':>9}  and others")
    for line in _remarks(redrive, found, expires, missing):
        console.print(f"  {line}")
    keys = ", ".join(safe(one.key) for one in found.first)
    console.print(f"  the first: {keys}{', ...' if redrive.letters > len(found.first) else ''}")
    console.print(f'start it: acklast redrive start {redrive.id} --why "..."')


def _remarks(redrive: Redrive, found: Preview, expires: datetime | None, missing: int) -> Iterator[str]:
    yield f"takes about {span(redrive.letters / _DEFAULT_PER_S)} at {RATE}, and its steps"
    for why, count in redrive.excluded.items():
        yield f"left out: {count:,} {EXCLUDED.get(why, why)}"
    if missing:
        yield f"left out: {missing:,} that are not there"
    if found.unchanged:
        running = ", ".join(map(safe, found.versions)) or "the same version"
        yield (
            f"{found.unchanged:,} failed again of the same with {running}, which still runs:"
            " not tried without --force"
        )
    if found.past_deadline:
        yield f"{found.past_deadline:,} are past their deadline, and end as deadline_exceeded"
    if expires is not None:
        yield f"the first of them loses its message at {second(expires)}"
    if not found.versions:
        yield f"no living daemon serves lane {redrive.lane}: nothing is tried until one does"


def expires_of(found: Preview, keep_payload_s: float | None) -> datetime | None:
    """When retention takes the first message; None where the lane is not configured here."""
    if found.oldest is None or keep_payload_s is None:
        return None
    try:
        return found.oldest + timedelta(seconds=keep_payload_s)
    except OverflowError:  # kept beyond the calendar
        return None


def tell(console: Console, redrive: Redrive, refused: Mapping[str, int] | None = None) -> None:
    """How a redrive stands. ``refused``: of how many letters it has tried none, by why."""
    console.print(headline(redrive))
    for name, value in [*facts(redrive), *_refusals(redrive, refused or {})]:
        console.print(f"  {name:<9} {value}")
    console.print(f"  {_next(redrive)}")


def facts(redrive: Redrive) -> list[tuple[str, str]]:
    """What there is to say of a redrive besides its counts, line by line."""
    lines = [("planned", f"{second(redrive.planned_at)} by {redrive.actor} ({redrive.login})")]
    if redrive.started_at is not None and redrive.steps:
        step = min(redrive.step + 1, len(redrive.steps))
        ends = ", ".join(f"{end:,}" for end in redrive.steps)
        lines += [
            ("started", f"{second(redrive.started_at)}: {safe(redrive.reason or '')}"),
            ("step", f"{step} of {len(redrive.steps)}, which end at {ends}"),
            ("pace", f"{shown_rate(redrive.rate_per_s or 0)} at most, {redrive.tolerate:.3%} may fail"),
        ]
    if redrive.forced:
        lines.append(("forced", safe(redrive.forced)))
    if redrive.status is RedriveStatus.RUNNING:
        lines.append(("daemon", safe(redrive.worker or "none yet: the next one of its lane takes it")))
    if redrive.ended_at is not None:
        lines.append(("ended", second(redrive.ended_at)))
    return lines


def _refusals(redrive: Redrive, refused: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    if refused:
        yield "not tried", ", ".join(f"{count:,} {why}" for why, count in refused.items())
        if redrive.decided:
            letters = f"acklast redrive status {redrive.id} --letters"
            yield "", f"their jobs are as they were: {letters}, and decide again"


def _next(redrive: Redrive) -> str:
    match redrive.status:
        case RedriveStatus.PLANNED:
            return f'start it: acklast redrive start {redrive.id} --why "..."'
        case RedriveStatus.ASKING | RedriveStatus.STOPPED:
            return f"it waits for a verdict: acklast redrive verdict {redrive.id}"
        case RedriveStatus.PAUSED:
            return f"let it go on: acklast redrive resume {redrive.id}"
        case RedriveStatus.RUNNING:
            return f"{_holds(redrive)}watch it: acklast redrive status {redrive.id} --watch"
        case RedriveStatus.FINISHED | RedriveStatus.CANCELLED:
            return f"its letters: acklast redrive status {redrive.id} --letters"


def _holds(redrive: Redrive) -> str:
    """Why nothing more is released, as far as the redrive itself can tell."""
    step = (redrive.steps or ())[redrive.step :][:1]
    if redrive.worker is None or not redrive.left:
        return ""
    if step and redrive.released >= step[0]:
        return f"the next step waits for the {redrive.out:,} at work; "
    return "" if redrive.out else "if nothing is released, acklast lanes tells why; "


def tell_trial(console: Console, one: Trial) -> None:
    console.print(f"{one.position:>9}  letter {one.letter}  {safe(one.key)}: {fate(one)}")
