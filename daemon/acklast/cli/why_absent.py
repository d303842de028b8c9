"""What may be said of a key that has no job where it was looked for: pure."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from acklast.cli.spans import moment
from acklast.cli.why_promised import unpublished
from acklast.cli.why_reason import Absent, Answer, Code, Expected, Need, Reason, ordered
from acklast.ledger.whereabouts import Fired, Stray


def absent(case: Absent) -> Answer:
    """Where it may be instead."""
    found = [*_promised(case), *_strays(case), *_fired(case), *_elsewhere(case)]
    if not any(reason.certain for reason in found):
        # What explains it well enough asks for nobody, though it is not proven.
        need = Need.WAIT if any(reason.need is Need.WAIT for reason in found) else Need.ACT
        found += [*_unfiled(case), _unknown(case, need)]
    if case.blind is not None:
        says = f"what waits on the broker could not be seen: {case.blind}"
        found.append(Reason(Code.BROKER_UNSEEN, Need.ACT, says, {"error": case.blind}, "acklast check"))
    return Answer(case.wanted, None, ordered(found))


def _promised(case: Absent) -> Iterator[Reason]:
    mine = [one for one in case.known.promises if case.wanted in (None, one.lane)]
    if mine:
        yield from unpublished(mine, case.known.now, case.known.oldest_due)


def _strays(case: Absent) -> Iterator[Reason]:
    for stray in case.known.strays:
        if stray.reason == "unrouted":
            yield _unrouted(case, stray)
        elif case.wanted in (None, stray.lane):
            at = moment(stray.last_failure_at, case.known.now)
            says = f"a message with this key came to lane {stray.lane or '-'} and was set aside at {at}"
            says += f" as {stray.reason}: {stray.detail}. It has no job"
            yield Reason(Code.SET_ASIDE, Need.ACT, says, _evidence(stray), f"acklast dead show {stray.id}")


def _unrouted(case: Absent, stray: Stray) -> Reason:
    says = f"a message with this key came by routing key {stray.routing_key!r} at "
    says += f"{moment(stray.last_failure_at, case.known.now)}, for which no lane is bound: a typo, mostly"
    lanes = ", ".join(sorted(case.ready)) or "none"
    says += f". The lanes are: {lanes}"
    helps = f"acklast dead show {stray.id}; then publish it again by the right routing key"
    return Reason(Code.UNROUTED, Need.ACT, says, _evidence(stray), helps)


def _evidence(stray: Stray) -> dict[str, object]:
    return {
        "letter": stray.id,
        "lane": stray.lane or None,
        "reason": stray.reason,
        "routing_key": stray.routing_key,
        "at": stray.last_failure_at,
        "seen": stray.seen,
    }


# --- schedules --------------------------------------------------------------------------------------------


def _fired(case: Absent) -> Iterator[Reason]:
    for one in case.known.firings[:1]:
        yield _firing(case, one)
    for expected in case.expected[:1]:
        yield _expected(case, expected)


def _firing(case: Absent, one: Fired) -> Reason:
    now, helps = case.known.now, f"acklast schedule history {one.schedule}"
    about = f"schedule {one.schedule} fired run {one.run} for {moment(one.scheduled_at, now)}"
    counts = f"{one.rows} rows read, {one.promised} jobs promised"
    evidence = {name: getattr(one, name) for name in Fired.__slots__}
    if one.state == "failed":
        says = f"{about}, and gave up: {one.error} ({counts})"
        return Reason(Code.FIRING_FAILED, Need.ACT, says, evidence, helps, certain=False)
    if one.state == "open":
        error = f"; {one.tries} tries failed, the last: {one.error}" if one.tries else ""
        says = f"{about}, and is still at work ({counts}){error}: this key may come yet"
        need = Need.ACT if one.tries else Need.WAIT
        return Reason(Code.FIRING, need, says, evidence, helps, certain=False)
    bad = f", {one.bad} of them bad" if one.bad else ""
    says = f"{about}, and is done ({counts}{bad}): no row made a job of this key, or retention has removed it"
    return Reason(Code.NOT_IN_FIRING, Need.ACT, says, evidence, helps, certain=False)


def _expected(case: Absent, one: Expected) -> Reason:
    evidence = {name: getattr(one, name) for name in Expected.__slots__}
    says = (
        f"schedule {one.schedule} makes run {one.run} at {moment(one.at, case.known.now)}: it has not fired"
    )
    if one.paused_by is None:
        helps = f"acklast schedule next {one.schedule}"
        return Reason(Code.NOT_FIRED, Need.WAIT, says, evidence, helps, certain=False)
    says += f", and is paused by {one.paused_by}: {one.paused_why}"
    helps = f"acklast schedule resume {one.schedule}"
    return Reason(Code.NOT_FIRED, Need.ACT, says, evidence, helps, certain=False)


# --- elsewhere, or nowhere --------------------------------------------------------------------------------


def _elsewhere(case: Absent) -> Iterator[Reason]:
    lanes = [facts.view.lane for facts in case.known.jobs]
    if case.wanted is None or not lanes:
        return
    says = f"the ledger knows this key, and not in lane {case.wanted}: it is in {', '.join(lanes)}"
    yield Reason(
        Code.OTHER_LANE,
        Need.NOTHING,
        says,
        {"lanes": lanes},
        f"acklast why {quote(case.known.key)} --lane {lanes[0]}",
    )


def _unfiled(case: Absent) -> Iterator[Reason]:
    if not case.unfiled:
        return
    says = f"{case.unfiled} messages that no lane is bound for wait to be taken in: it may be one of them"
    says += "" if case.daemons else ". No daemon runs that would file them"
    need = Need.WAIT if case.daemons else Need.ACT
    yield Reason(Code.UNFILED, need, says, {"messages": case.unfiled}, "acklast dead list", certain=False)


def _unknown(case: Absent, need: Need) -> Reason:
    lanes = {lane: count for lane, count in case.ready.items() if case.wanted in (None, lane)}
    unseen = [lane for lane, count in lanes.items() if count is None]
    waiting = sum(count or 0 for count in lanes.values())
    where = f"lane {case.wanted}" if case.wanted else "any lane"
    says = f"the ledger does not know this key in {where}: "
    if waiting or unseen:
        behind = f"behind {waiting:,} messages" if waiting else "which could not be seen"
        also = f" ({', '.join(unseen)} could not be seen)" if waiting and unseen else ""
        says += f"either it was not published, or it is still in the broker's queue {behind}{also}"
        says += " (a queue of the broker cannot be searched)"
    else:
        says += "no message is seen waiting in its queues, so it was probably not published"
    says += ", or under another key, lane or namespace, or its retention is over (keep_done_s)"
    evidence = {"ready": dict(lanes), "lane": case.wanted, "unseen": unseen}
    return Reason(Code.UNKNOWN, need, says, evidence, "acklast lanes", certain=False)
