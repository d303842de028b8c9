"""What is seen of a unit from outside: probes and metrics at its address, traces at a collector."""

from __future__ import annotations

from collections.abc import Mapping

from acklast.telemetry import catalogue as of
from booted.conftest import Host
from dev.otelcol import GRPC, Collector
from dev.workspace import free_port
from harness import eventually
from harness.collector import values_of
from harness.probing import probe
from harness.scraping import Scraped, scrape
from harness.tap import tap


def listening(host: Host, at: str) -> None:
    config = host.etc / "acklast.toml"
    config.write_text(f'{config.read_text()}\n[health]\nlisten = "{at}"\n')


def telling(host: Host, env: Mapping[str, str]) -> None:
    """OTEL_* variables as a drop-in has them."""
    host.drop_in("\n".join(f'Environment="{name}={value}"' for name, value in env.items()))


async def test_a_unix_socket_in_the_state_directory_answers_probes_and_has_the_metrics(host: Host) -> None:
    listening(host, "unix:health.sock")
    host.start()
    await host.publish("seen")
    await host.done("seen")
    socket = host.state / "health.sock"
    assert (await probe(socket, "/livez"))[0] == 200
    status, body = await probe(socket, "/readyz")
    assert (status, body["ready"], body["configuration"]) == (200, True, "")

    async def counted() -> Scraped | None:
        found = await scrape(socket)
        return found if found.has(of.OUTCOMES_TOTAL) else None

    assert (await eventually(counted)).value(of.OUTCOMES_TOTAL, lane="work", outcome="done") == 1
    account = host.machine.must("stat", "-c", "%U %a", "/var/lib/acklast/health.sock")
    assert account == "acklast 700\n"
    config = host.etc / "acklast.toml"
    config.write_text(config.read_text().replace("concurrency = 2", "concurrency = 0"))
    host.machine.must("systemctl", "reload", "acklast")

    async def told() -> bool:
        status, body = await probe(socket, "/readyz")
        return status == 200 and "concurrency = 0" in body["configuration"]

    await eventually(told, what="a reload that failed is told")


async def test_a_loopback_port_answers(host: Host) -> None:
    port = free_port()
    listening(host, f"127.0.0.1:{port}")
    host.start()
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    answer = host.machine.must("bash", "-c", script)
    assert answer.startswith("HTTP/1.0 200")
    assert '"ready": true' in answer


async def test_traces_leave_the_sandbox_by_http(host: Host) -> None:
    async with tap() as received:
        telling(host, received.env())
        host.start()
        await host.publish("traced")
        spans = await received.settled("traced")
    assert [span.operation for span in spans] == ["receive", "process", "settle"]
    assert host.is_(ActiveState="active", NRestarts="0")


async def test_telemetry_leaves_the_sandbox_by_grpc(host: Host, otelcol: Collector) -> None:
    every = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
    telling(
        host, {**otelcol.env(GRPC), **every, "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test"}
    )
    host.start()
    await host.publish("traced")
    await host.done("traced")
    await eventually(lambda: "process acklast.v1.work.work" in otelcol.text(), what="its span has come")
    await eventually(lambda: 1.0 in values_of(otelcol.text(), "acklast.outcomes"), what="it is counted")
    assert "deployment.environment.name: Str(test)" in otelcol.text()
    assert host.systemctl("stop", "acklast") == 0
    assert host.is_(Result="success")
