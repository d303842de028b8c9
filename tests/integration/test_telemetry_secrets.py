"""What must never be told is planted everywhere it could come from, and looked for everywhere it could go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import pytest

from acklast.errors import Exit
from acklast.ledger.api import State
from acklast_topology.publish import Job
from dev.otelcol import HTTP, Collector
from harness import eventually
from harness.downstream import downstream, says
from harness.journaled import journal, journaled
from harness.scraping import scrape
from harness.scripted import LANE, TYPE
from harness.site import Site
from harness.tap import QUICK

NewSite: TypeAlias = Callable[..., AbstractAsyncContextManager[Site]]

PLANTED: Final = {
    name: f"planted-{name}-4711"
    for name in ("payload", "header", "password", "body", "answer", "key", "exporter", "template", "query")
}
TRACEPARENT: Final = f"00-{'ab' * 16}-{'cd' * 8}-01"
HEALTH: Final = '[health]\nlisten = "unix:h.sock"\n'


@pytest.fixture
def receiver() -> str:
    """One is enough: what is proved here is behind both."""
    return "bulk"


def found_in(text: str) -> set[str]:
    return {name for name, secret in PLANTED.items() if secret in text}


def refused_by(url: str) -> dict[str, str]:
    """What a daemon finds that exports to this URL, with secrets in it and beside it."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url.replace("http://", f"http://user:{PLANTED['password']}@"),
        "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={PLANTED['exporter']}",
        "ACKLAST__LOG__LEVEL": "debug",
        **QUICK,
    }


def test_what_is_looked_for_is_found_where_it_is() -> None:
    assert found_in(f"... {PLANTED['payload']} ...") == {"payload"}


async def test_an_http_lane_tells_nothing_of_what_it_sends_and_gets(
    new_site: NewSite, otelcol: Collector, ledger_dsn: str
) -> None:
    """Payload and headers, the URL's path and query, the templates' secrets; the answer's body and header.

    And the passwords of broker and ledger, which the daemon has all the time.
    """
    answer = says(500, PLANTED["body"], X_Answer=PLANTED["answer"])
    async with downstream(answer) as api:
        http = (
            f'url = "{api.url}/{{{{ payload.secret }}}}?key={PLANTED["query"]}"\n'
            f'headers = {{ Authorization = "Bearer {PLANTED["template"]}" }}\n'
        )
        env = {
            **otelcol.env(HTTP),
            **QUICK,
            "OTEL_LOGS_EXPORTER": "otlp",
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
            "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={PLANTED['exporter']}",
            "ACKLAST__LOG__LEVEL": "debug",
        }
        async with new_site(http=http, more=HEALTH, max_attempts=2) as place:
            headers = {"traceparent": TRACEPARENT, "secret": PLANTED["header"], "baggage": PLANTED["key"]}
            job = Job.json(LANE, "k-1", {"secret": PLANTED["payload"]}, type=TYPE, headers=headers)
            await place.publish(job)
            with place.daemon(env=env) as daemon:
                await place.reaches("k-1", State.DEAD)
                metrics = str(await scrape(place.directory / "state" / "h.sock"))
                assert await daemon.drained() == Exit.OK
        assert len(api.calls) == 2
        assert PLANTED["payload"] in api.calls[0].target, "it was there to be told"
        passwords = [urlsplit(url).password for url in (place.broker_url, ledger_dsn)]
    exported = otelcol.text()
    assert "job.settled" in exported
    assert "process acklast.v1" in exported
    assert found_in(daemon.text()) == set()
    assert found_in(exported) == set()
    assert found_in(metrics) == set()
    for password in passwords:
        assert password
        assert password not in daemon.text() + exported + metrics


async def test_a_handlers_exception_and_a_collector_that_refuses_tell_nothing(new_site: NewSite) -> None:
    """The text of an exception, which may quote a provider's answer; the URL of the collector."""
    async with downstream(says(401, PLANTED["answer"])) as api:
        env = {**refused_by(api.url), "OTEL_METRIC_EXPORT_INTERVAL": "200"}
        async with new_site(app="harness.talkative:app", max_attempts=1) as place:
            await place.publish(Job.json(LANE, "k-1", {"secret": PLANTED["body"]}, type=TYPE))
            with place.daemon(env=env) as daemon:
                assert (await daemon.says("job.settled", key="k-1"))["outcome"] == "unknown"
                await eventually(lambda: daemon.said("telemetry.not_exported", signal="traces"))
                assert await daemon.drained() == Exit.OK
    [said] = daemon.said("telemetry.not_exported", signal="traces")
    assert said["why"] == "http_401"
    assert found_in(daemon.text()) == set()


async def test_the_journal_is_told_nothing_that_the_log_is_not(new_site: NewSite, ledger_dsn: str) -> None:
    """The same, where systemd's journal takes what the daemon says of itself with its fields."""
    async with downstream(says(401, PLANTED["answer"])) as api:
        env = refused_by(api.url)
        async with new_site(app="harness.talkative:app", max_attempts=1) as place:
            headers = {"secret": PLANTED["header"], "baggage": PLANTED["key"]}
            job = Job.json(LANE, "k-1", {"secret": PLANTED["body"]}, type=TYPE, headers=headers)
            await place.publish(job)
            async with journal(place.directory) as told:
                with journaled(place.daemon(env=env, fresh=True), place.directory) as daemon:
                    await place.reaches("k-1", State.DEAD)
                    await eventually(lambda: b"telemetry.not_exported" in told)
                    assert await daemon.drained() == Exit.OK
                await eventually(lambda: b"drain.receipt" in told)
    entries = told.decode(errors="replace")  # lengths are binary
    assert "ACKLAST_EVENT" in entries
    assert "<4>" in daemon.text(), "a job's line has its priority, and stays on the stream"
    passwords = [urlsplit(url).password or "" for url in (place.broker_url, ledger_dsn)]
    for text in (entries, daemon.text()):
        assert found_in(text) == set()
        assert [password for password in passwords if not password or password in text] == []
