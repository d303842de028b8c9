"""``acklast lanes`` without a daemon: what it tells, what it refuses, and with what remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from acklast.errors import Exit
from harness import Broker
from harness.command import Command

PACED = """
budget = "api"
concurrency = 4
[lanes.invoices]
budget = "api"
[lanes.mail]
budget = "mailer"
[lanes.free]
[budgets.api]
quota = "20 per 1 s"
concurrency = 8
[budgets.mailer]
quota = "100 per 60 s"
headroom = 0.1
"""

REFUSED = (
    (("pause", "nope"), "The lanes are: cleanup, free, invoices, mail"),
    (("pause", "api"), "'api' is a budget: --budget api"),
    (("pause", "--budget", "nope"), "The budgets are: api, mailer"),
    (("pause", "--budget", "mail"), "'mail' is a lane: leave --budget away"),
    (("pause",), "Give LANE, or --budget NAME"),
    (("pause", "mail", "--budget", "api"), "Give LANE, or --budget NAME"),
    (("pause", "mail", "--for", "soon"), "'soon' is no span of time"),
    (("pause", "mail", "--for", "1h", "--until", "2030-01-01T00:00:00Z"), "Give one of them"),
    (("pause", "mail", "--until", "2020-01-01T00:00:00Z"), "is over"),
    (("resume", "nope"), "The lanes are: cleanup, free, invoices, mail"),
    (("set", "mail"), "Give --rate, --quota or --concurrency, or --clear"),
    (("set", "mail", "--rate", "1.6"), "The most is 90 per 60 s (1.5/s)"),
    (("set", "mail", "--rate", "0"), "to stop, pause"),
    (("set", "mail", "--quota", "91 per 60 s"), "The most is 90 per 60 s"),
    (("set", "mail", "--quota", "5 per 1 s"), "in periods of 60 s or longer"),
    (("set", "mail", "--quota", "many"), "'many' is no quota"),
    (("set", "mail", "--rate", "1", "--quota", "5 per 60 s"), "Give one of them"),
    (("set", "cleanup", "--rate", "1"), "shares budget 'api' with invoices"),
    (("set", "free", "--rate", "1"), "it has no quota that could be lowered"),
    (("set", "cleanup", "--concurrency", "5"), "The most is 4"),
    (("set", "--budget", "api", "--concurrency", "9"), "The most is 8"),
    (("set", "--budget", "mailer", "--concurrency", "9"), "has no concurrency in the configuration"),
    (("set", "mail", "--clear", "--rate", "1"), "--clear takes no other setting"),
)


@pytest.fixture
def command(tmp_path: Path, broker: Broker, ledger_dsn: str, capsys: pytest.CaptureFixture[str]) -> Command:
    made = Command(tmp_path, broker.url, ledger_dsn, capsys)
    made.config.write_text(made.config.read_text() + PACED)
    return made


def test_a_place_that_nobody_serves_is_told_as_such(command: Command) -> None:
    command("topology", "apply")
    done = command("lanes")
    assert done.exit == Exit.OK
    header, *rows = done.out.splitlines()
    assert " ".join(header.split()) == "LANE STATE BUDGET QUOTA NOW USED IN FLIGHT WAITING DAEMONS PERMITS"
    assert rows[0].split()[:3] == ["cleanup", "stopped", "api"]
    assert rows[1].strip() == "no daemon serves it: start 'acklast run'"
    lanes = {lane["lane"]: lane for lane in command("lanes", "--json").document["lanes"]}
    assert (lanes["mail"]["quota"], lanes["mail"]["waiting"]) == ("90 per 60 s", 0)
    assert lanes["free"]["effective_per_s"] is None


def test_a_queue_that_is_not_there_comes_first_with_its_remedy(command: Command) -> None:
    done = command("lanes", "--json").document
    assert done["lanes"][0]["state"] == "stopped"
    assert "acklast.v1.cleanup.work" in done["lanes"][0]["why"]
    assert "run 'acklast topology apply'" in done["lanes"][0]["why"]
    assert done["lanes"][0]["waiting"] is None


def test_without_the_broker_the_rest_is_told(command: Command) -> None:
    command("lanes", "pause", "cleanup", "--reason", "x")
    command.config.write_text(command.config.read_text().replace(command.url, "amqp://127.0.0.1:1/"))
    done = command("lanes")
    assert done.exit == Exit.OK
    assert "paused by" in done.out
    assert "what waits on the broker could not be seen" in done.out
    assert " ? " in done.out


def test_a_pause_is_seen_by_check_and_ended_by_resume(command: Command) -> None:
    command("topology", "apply")
    done = command("lanes", "pause", "--budget", "api", "--reason", "slow provider", "--as", "duty")
    assert (done.exit, done.out) == (
        Exit.OK,
        "budget api paused; no daemon runs now, and each will follow when it starts\n",
    )
    [controls] = [one for one in command("check", "--json").document["checks"] if one["name"] == "controls"]
    assert controls["ok"] is True
    assert "cleanup is paused by duty: slow provider; invoices is paused by duty" in controls["detail"]
    lane = command("lanes", "resume", "cleanup")
    assert lane.exit == Exit.OK
    assert "lane cleanup: there was nothing to resume" in lane.out
    assert "its budget api is paused by duty: slow provider; --budget api resumes it" in lane.out
    assert command("lanes", "resume", "cleanup", "--json").document["still_paused"]["name"] == "api"
    assert command("lanes", "resume", "--budget", "api").exit == Exit.OK
    assert {lane["paused"] for lane in command("lanes", "--json").document["lanes"]} == {None}
    shown = command("lanes", "history", "cleanup").out
    assert "pause  budget api by duty" in shown
    assert "before as configured; after paused" in shown
    assert command("lanes", "history", "free", "--json").document["history"] == []


def test_what_cannot_be_done_is_refused_with_what_can(command: Command) -> None:
    for arguments, says in REFUSED:
        why = () if arguments[0] == "resume" else ("--reason", "x")
        done = command("lanes", *arguments, *why)
        assert (done.exit, done.out) == (Exit.USAGE, ""), (arguments, done)
        assert says in done.err, (arguments, done)
    for reason in ((), ("--reason", "  "), ("--reason", "x" * 501)):
        assert command("lanes", "pause", "mail", *reason).exit == Exit.USAGE
    assert command("lanes", "history", "--json").document["history"] == []


def test_a_lane_takes_what_is_its_own_and_its_budgets(command: Command) -> None:
    command("topology", "apply")
    done = command("lanes", "set", "mail", "--rate", "0.25", "--reason", "be kind", "--json").document
    assert (done["target"], done["name"], done["changed"]) == ("budget", "mailer", True)
    command("lanes", "set", "cleanup", "--concurrency", "2", "--reason", "x", "--for", "2h")
    lanes = {lane["lane"]: lane for lane in command("lanes", "--json").document["lanes"]}
    assert lanes["mail"]["quota_in_force"] == "15 per 60 s"
    [limit] = lanes["cleanup"]["limits"]
    assert (limit["kind"], limit["amount"]) == ("concurrency", 2)
    assert 7000 < limit["left_s"] <= 7200
    command("lanes", "set", "--budget", "mailer", "--clear")
    command("lanes", "set", "cleanup", "--clear")
    again = command("lanes", "set", "cleanup", "--clear", "--json")
    assert (again.exit, again.document["changed"]) == (Exit.OK, False)
    assert [lane["limits"] for lane in command("lanes", "--json").document["lanes"]] == [[]] * 4
