"""A lane without Python: real daemon, broker and ledger, and a downstream that answers as it likes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from aiohttp import web

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.publish import Job
from harness.downstream import aborts, breaks_off, downstream, hangs, says
from harness.scripted import LANE
from harness.site import RUN, Site
from harness.waiting import eventually

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]


@pytest.fixture
def receiver() -> str:
    """One is enough: what is proved here is behind both."""
    return "bulk"


TYPE = "rent.reminder.v1"


def reminder(key: str, **payload: Any) -> Job:
    return Job.json(LANE, key, {"tenant": 7, "amount": 120, **payload}, type=TYPE, run=RUN)


async def test_a_job_becomes_one_request(new_site: NewSite) -> None:
    async with downstream(says(201, "created")) as api:
        http = f"""
            method = "PUT"
            url = "{api.url}/tenants/{{{{ payload.tenant }}}}/reminders/{{{{ key }}}}?run={{{{ run }}}}"
            headers = {{ X-Type = "{{{{ type }}}}" }}
            json = {{ amount = "{{{{ payload.amount }}}}", text = "due: {{{{ payload.amount }}}} EUR" }}
            excerpt_bytes = 100
        """
        async with new_site(http=http) as place:
            await place.publish(reminder("run-1:a/b ?"))
            with place.daemon() as daemon:
                job = await place.reaches("run-1:a/b ?", State.DONE)
                assert await daemon.drained() == Exit.OK
        [call] = api.calls
        assert (call.method, call.target) == ("PUT", "/tenants/7/reminders/run-1%3Aa%2Fb%20%3F?run=run-1")
        assert json.loads(call.body) == {"amount": 120, "text": "due: 120 EUR"}
        assert call.headers["Content-Type"] == "application/json"
        assert call.headers["X-Type"] == TYPE
        assert call.headers["Idempotency-Key"] == '"run-1:a/b ?"'
        assert call.headers["User-Agent"].startswith("acklast/")
        assert job.result == {"status": 201, "excerpt": "created"}


async def test_a_check_tells_the_request_and_no_part_of_its_query(new_site: NewSite) -> None:
    http = 'method = "put"\nurl = "https://api.example/v1/{{ key }}?api_key=s3cret"'
    async with new_site(http=http) as place:
        checks, code = await checked(place.directory / "acklast.toml")
    application = next(one["detail"] for one in checks if one["name"] == "application")
    assert application == "PUT https://api.example/v1/{{ key }} in work"
    assert (code, "s3cret" in str(checks)) == (Exit.OK, False)


async def checked(config: Path) -> tuple[list[dict[str, Any]], int | None]:
    """What ``acklast check`` says, and its exit code."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "acklast", "check", "--json", "--config", config),
        env={name: value for name, value in os.environ.items() if not name.startswith("ACKLAST")},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    return json.loads(said)["checks"], process.returncode


async def test_each_answer_has_its_meaning(new_site: NewSite) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        status = int(request.path.strip("/"))
        first = len([call for call in api.calls if call.target == request.path]) == 1
        headers = {"Retry-After": "1"} if status == 429 else {"Location": "/200"} if status == 302 else {}
        return web.Response(status=status if first or status in (302, 404) else 200, headers=headers)

    async with downstream(answer) as api:
        http = f'url = "{api.url}/{{{{ payload.say }}}}"\nstatus = {{ 409 = "done" }}'
        async with new_site(http=http) as place:
            await place.publish(*(reminder(f"k-{say}", say=say) for say in (200, 409, 429, 500, 404, 302)))
            with place.daemon() as daemon:
                done = {say: await place.reaches(f"k-{say}", State.DONE) for say in (200, 409, 429, 500)}
                dead = {say: await place.reaches(f"k-{say}", State.DEAD) for say in (404, 302)}
                assert await daemon.drained() == Exit.OK
        assert {say: (job.attempts, job.rate_limited) for say, job in done.items()} == {
            200: (1, 0),
            409: (1, 0),
            429: (1, 1),
            500: (2, 0),
        }
        assert [job.letters[0].reason for job in dead.values()] == ["http_404", "http_302"]
        assert len([call for call in api.calls if call.target == "/302"]) == 1
        # The retry is the same request under the same key.
        repeated = [call for call in api.calls if call.target == "/500"]
        assert len({(call.body, call.headers["Idempotency-Key"]) for call in repeated}) == 1


async def test_what_was_sent_and_not_answered_is_unknown(new_site: NewSite) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return await {"/hangs": hangs, "/aborts": aborts, "/breaks": breaks_off}[request.path](request)

    async with downstream(answer) as api:
        http = f"""
            method = "DELETE"
            url = "{api.url}/{{{{ payload.say }}}}"
            read_timeout_s = 0.5
        """
        async with new_site(http=http, on_unknown="hold") as place:
            reasons = {"hangs": "read_timeout", "aborts": "disconnected", "breaks": "body"}
            await place.publish(*(reminder(say, say=say) for say in reasons))
            with place.daemon() as daemon:
                jobs = {say: await place.reaches(say, State.UNRESOLVED) for say in reasons}
                assert await daemon.drained() == Exit.OK
        found = {say: job.letters[0].reason for say, job in jobs.items()}
        assert found == {say: f"cut_off:{reason}" for say, reason in reasons.items()}
        # No client library repeats a call behind our back, though it was a DELETE.
        assert sorted(call.target for call in api.calls) == ["/aborts", "/breaks", "/hangs"]


async def test_an_attempt_that_runs_out_of_time_is_unknown_too(new_site: NewSite) -> None:
    async with downstream(hangs) as api:
        http = f'url = "{api.url}/"\ntimeout_s = 0.5'
        async with new_site(http=http, on_unknown="hold") as place:
            await place.publish(reminder("slow"))
            with place.daemon() as daemon:
                job = await place.reaches("slow", State.UNRESOLVED)
                assert await daemon.drained() == Exit.OK
        assert job.letters[0].reason == "timeout"


async def test_what_was_never_sent_did_not_happen(new_site: NewSite) -> None:
    async with downstream(says(200)) as gone:
        url = gone.url
    async with new_site(http=f'url = "{url}/"', on_unknown="hold", max_attempts=2) as place:
        await place.publish(reminder("refused"))
        with place.daemon() as daemon:
            job = await place.reaches("refused", State.DEAD)
            assert await daemon.drained() == Exit.OK
    assert [attempt.outcome for attempt in job.history] == ["transient", "transient"]
    assert job.letters[0].reason == "not_sent:connect"


async def test_connections_are_kept_and_no_more_than_the_concurrency(new_site: NewSite) -> None:
    gate = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return web.Response(text="x" * 10_000)

    async with downstream(answer) as api, new_site(http=f'url = "{api.url}/"', concurrency=3) as place:
        await place.publish(*(reminder(f"k-{n}") for n in range(30)))
        with place.daemon() as daemon:
            await eventually(lambda: api.busy == 3, what="three calls are under way")
            gate.set()
            for n in range(30):
                await place.reaches(f"k-{n}", State.DONE)
            assert await daemon.drained() == Exit.OK
    assert (len(api.calls), api.busiest, api.connections) == (30, 3, 3)


async def test_a_secret_is_sent_and_never_shown(new_site: NewSite) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/fails":
            raise web.HTTPBadRequest(text=request.headers["Authorization"])
        return web.Response(text=f"you said {request.headers['Authorization']}")

    async with downstream(answer) as api:
        http = f"""
            url = "{api.url}/{{{{ payload.say }}}}"
            headers = {{ Authorization = "Bearer {{{{ secrets.token }}}}" }}
            secrets = {{ token = "mail-token" }}
            excerpt_bytes = 200
        """
        async with new_site(http=http, more='[log]\nlevel = "debug"') as place:
            (place.directory / "mail-token").write_text("s3cret-s3cret\n")
            await place.publish(reminder("echoes", say="echoes"), reminder("fails", say="fails"))
            with place.daemon() as daemon:
                done = await place.reaches("echoes", State.DONE)
                dead = await place.reaches("fails", State.DEAD)
                assert await daemon.drained() == Exit.OK
                assert "s3cret" not in daemon.text()
        assert {call.headers["Authorization"] for call in api.calls} == {"Bearer s3cret-s3cret"}
        assert done.result == {"status": 200, "excerpt": "you said Bearer ***"}
        assert "s3cret" not in repr(dead)


async def test_a_job_without_what_the_request_needs_is_a_dead_letter(new_site: NewSite) -> None:
    async with downstream(says(200)) as api:
        http = f'url = "{api.url}/"\njson = {{ to = "{{{{ payload.email }}}}" }}'
        async with new_site(http=http) as place:
            await place.publish(reminder("lacks"))
            with place.daemon() as daemon:
                job = await place.reaches("lacks", State.DEAD)
                assert await daemon.drained() == Exit.OK
        [letter] = job.letters
        assert (letter.reason, letter.detail) == ("invalid_payload", "json.to: email is missing")
        assert api.calls == []


async def test_a_downstream_that_is_down_is_probed_by_one_job(new_site: NewSite) -> None:
    down = True

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=500 if down else 200)

    async with downstream(answer) as api:
        more = '[budgets.mail]\nquota = "1000 per 1 s"\nbreaker = { after = 3, pause_s = 1 }'
        async with new_site(
            http=f'url = "{api.url}/"', more=more, budget="mail", concurrency=3, max_attempts=4
        ) as place:
            await place.publish(*(reminder(f"k-{n}") for n in range(20)))
            with place.daemon() as daemon:
                await daemon.says("breaker.opened")
                await daemon.says("breaker.opened", pause_s=2.0)
                # Three calls that opened it, two that were under way by then, and the one that went to see.
                assert 4 <= (burnt := len(api.calls)) <= 6
                down = False
                await daemon.says("breaker.closed")
                jobs = [await place.reaches(f"k-{n}", State.DONE) for n in range(20)]
                assert await daemon.drained() == Exit.OK
    assert sum(job.attempts for job in jobs) == 20 + burnt
