"""Jobs that fail alike end in dead letters of one fingerprint, by the way that every job takes."""

from __future__ import annotations

from typing import Any

from acklast import App, Permanent, Transient
from acklast.testing import TestWorker

LANE = "mail"


def failures_of(app: App, *payloads: dict[str, Any]) -> list[str]:
    """The fingerprints of the letters of one job for each payload."""
    with TestWorker(app) as worker:
        jobs = [worker.publish(LANE, payload) for payload in payloads]
        worker.run_until_idle()
        return [job.letters[0].failure for job in jobs]


def test_what_was_raised_makes_the_fingerprint_and_values_do_not() -> None:
    app = App()

    @app.job("mail.v1", lane=LANE)
    async def send(payload: dict[str, Any]) -> None:
        if payload["shut"]:
            raise ValueError(f"house {payload['id']} is shut since {payload['at']}")
        raise ValueError(f"house {payload['id']} is sold")

    one, other, sold = failures_of(
        app,
        {"id": 17, "shut": True, "at": "2026-01-02T03:04:05Z"},
        {"id": "6f1a5f0e-9d1c-4b8e-8a53-0d9a1f6f8f11", "shut": True, "at": "Mon, 30 Nov 2026 06:55:41 GMT"},
        {"id": 17, "shut": False, "at": ""},
    )
    assert one == other != sold
    assert one.startswith("v1-")


def test_a_reason_of_ones_own_counts_as_it_stands_and_so_does_the_place() -> None:
    app = App()

    def check(payload: dict[str, Any]) -> None:
        raise Permanent(payload["reason"])

    @app.job("mail.v1", lane=LANE)
    async def send(payload: dict[str, Any]) -> None:
        if payload.get("elsewhere"):
            raise Permanent(payload["reason"])
        if payload.get("later"):
            raise Transient(payload["reason"])
        check(payload)

    found = failures_of(
        app,
        {"reason": "invalid_recipient"},
        {"reason": "invalid_recipient"},
        {"reason": "http_500"},
        {"reason": "http_502"},
        {"reason": "invalid_recipient", "elsewhere": True},
        {"reason": "invalid_recipient", "later": True},
    )
    assert found[0] == found[1]
    assert len(set(found)) == 5
