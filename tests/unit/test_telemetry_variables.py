"""The standard variables of OpenTelemetry: what they switch on, and what stops the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc  # type: ignore[import-untyped]  # it comes without types
import pytest
import requests

from acklast.errors import ConfigError
from acklast.telemetry import credentials
from acklast.telemetry.credentials import check_credentials
from acklast.telemetry.variables import Batching, Exporter, Exporting, Sampling, Signal, exporting_of

HOST = "http://collector"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def test_nothing_is_exported_where_nothing_is_named() -> None:
    assert exporting_of({}) == Exporting()
    assert exporting_of({ENDPOINT: " ", "OTEL_TRACES_EXPORTER": ""}) == Exporting()


def test_an_endpoint_is_enough_for_traces_and_metrics() -> None:
    routes = exporting_of({ENDPOINT: f"{HOST}:4318/"}).routes
    assert {signal: route.endpoint for signal, route in routes.items()} == {
        Signal.TRACES: f"{HOST}:4318/v1/traces",
        Signal.METRICS: f"{HOST}:4318/v1/metrics",
    }
    assert {route.protocol for route in routes.values()} == {"http/protobuf"}


def test_logs_are_exported_only_where_they_are_asked_for() -> None:
    routes = exporting_of({ENDPOINT: f"{HOST}:4318", "OTEL_LOGS_EXPORTER": "otlp"}).routes
    assert routes[Signal.LOGS].endpoint == f"{HOST}:4318/v1/logs"


def test_an_exporter_is_enough() -> None:
    routes = exporting_of({"OTEL_TRACES_EXPORTER": "otlp"}).routes
    assert [route.endpoint for route in routes.values()] == ["http://localhost:4318/v1/traces"]
    assert (
        exporting_of({"OTEL_TRACES_EXPORTER": "console"}).routes[Signal.TRACES].exporter is Exporter.CONSOLE
    )


@pytest.mark.parametrize(
    "env",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "prometheus"},
    ],
    ids=["disabled", "none"],
)
def test_what_switches_off_wins_over_an_endpoint(env: dict[str, str]) -> None:
    assert exporting_of({ENDPOINT: f"{HOST}:4318", **env}).routes == {}


@pytest.mark.parametrize(
    ("env", "protocol", "endpoint"),
    [
        ({ENDPOINT: f"{HOST}:4317"}, "grpc", f"{HOST}:4317"),
        ({ENDPOINT: "collector:4317"}, "grpc", f"{HOST}:4317"),
        ({ENDPOINT: f"{HOST}:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc", f"{HOST}:9"),
        (
            {
                ENDPOINT: f"{HOST}:4317",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{HOST}:9/t",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            "http/protobuf",
            f"{HOST}:9/t",
        ),
    ],
    ids=["its port", "without a scheme", "by name", "the signal's own"],
)
def test_the_protocol_and_the_place_of_a_signal(env: dict[str, str], protocol: str, endpoint: str) -> None:
    route = exporting_of(env).routes[Signal.TRACES]
    assert (route.protocol, route.endpoint) == (protocol, endpoint)


def test_the_rest_is_read_as_the_specification_has_it() -> None:
    read = exporting_of(
        {
            ENDPOINT: f"{HOST}:4318",
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, tenant=x",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "tenant=y",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_RESOURCE_ATTRIBUTES": "service.name=one,team=rent",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.01",
            "OTEL_BSP_MAX_QUEUE_SIZE": "100",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
    )
    route = read.routes[Signal.TRACES]
    assert route.headers == {"api-key": "a b", "tenant": "y"}
    assert (route.timeout_s, route.compression) == (2.5, "gzip")
    assert (read.service, read.attributes["team"]) == ("one", "rent")
    assert read.sampling == Sampling("parentbased_traceidratio", 0.01)
    assert read.spans == Batching(100, 100, 0.2)
    assert read.metrics_every_s == 1.0
    assert "a b" not in repr(read)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "otlp, console, none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "grpc, http/protobuf"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli", "none, gzip"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10", "from 100 to 86400000"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "inf", "of milliseconds"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1e13", "from 1 to 86400000"),
        ("OTEL_TRACES_SAMPLER", "sometimes", "parentbased_traceidratio"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "from 1 to 1000000"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096", "from 1 to 2048"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon", "from 1 to 86400000"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "sum", "cumulative, delta, lowmemory"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team", "KEY=VALUE"),
        ("OTEL_SDK_DISABLED", "yes", "true, false"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_what_can(name: str, value: str, told: str) -> None:
    with pytest.raises(ConfigError) as stopped:
        exporting_of({ENDPOINT: f"{HOST}:4318", name: value})
    assert name in stopped.value.what
    assert told in stopped.value.remedy


def test_the_ratio_is_between_none_and_all() -> None:
    env = {ENDPOINT: HOST, "OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "5"}
    with pytest.raises(ConfigError, match="from 0 to 1"):
        exporting_of(env)


@pytest.mark.parametrize(
    "value", ["ftp://u:hidden@h:1", "http://u:hidden@h:notaport", "http://u:hidden@", "http://u:hidden@a b"]
)
def test_a_url_and_a_header_are_never_shown(value: str) -> None:
    with pytest.raises(ConfigError) as stopped:
        exporting_of({ENDPOINT: value})
    assert "hidden" not in str(stopped.value)
    with pytest.raises(ConfigError) as stopped:
        exporting_of({ENDPOINT: HOST, "OTEL_EXPORTER_OTLP_HEADERS": "hidden"})
    assert "hidden" not in str(stopped.value)


def test_headers_have_small_names_as_grpc_needs_them() -> None:
    env = {ENDPOINT: HOST, "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20x"}
    assert exporting_of(env).routes[Signal.TRACES].headers == {"authorization": "Bearer x"}


@pytest.mark.parametrize(
    "pair", ["my key=hidden", "k%C3%A9y=hidden", "key=hidden%0Ax", "key=hidden%E2%82%AC"]
)
def test_a_header_that_no_request_can_have_stops_the_start(pair: str) -> None:
    with pytest.raises(ConfigError, match="cannot be sent") as stopped:
        exporting_of({ENDPOINT: HOST, "OTEL_EXPORTER_OTLP_HEADERS": pair})
    assert "hidden" not in str(stopped.value)


def test_a_file_for_tls_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    env = {ENDPOINT: HOST, "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": str(tmp_path / "ca.pem")}
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE"):
        check_credentials(env, exporting_of(env))
    (tmp_path / "ca.pem").write_text("")
    check_credentials(env, exporting_of(env))
    check_credentials({"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere"}, Exporting())


class Provider:
    """An entry point of a credential provider."""

    def __init__(self, name: str, gives: Callable[[], object]) -> None:
        self.name = name
        self._gives = gives

    def load(self) -> Callable[[], object]:
        return self._gives


def broken() -> object:
    raise ValueError("secret")


@pytest.mark.parametrize("signal", ["", "TRACES_"])
@pytest.mark.parametrize("kind", ["HTTP", "GRPC"])
@pytest.mark.parametrize(
    ("provider", "what", "remedy"),
    [
        ("nowhere", "is no credential provider that is installed", "name one of: broken, good, other"),
        ("other", "gives a str, and no", "made for this protocol"),
        ("broken", "fails with ValueError", "Put the provider right"),
        ("good", "", ""),
    ],
)
def test_a_credential_provider_is_tried_before_the_start(
    monkeypatch: pytest.MonkeyPatch, signal: str, kind: str, provider: str, what: str, remedy: str
) -> None:
    good = {"HTTP": requests.Session, "GRPC": grpc.local_channel_credentials}[kind]
    installed = [Provider("good", good), Provider("other", str), Provider("broken", broken)]
    monkeypatch.setattr(credentials, "entry_points", lambda group: installed)
    name = f"OTEL_PYTHON_EXPORTER_OTLP_{kind}_{signal}CREDENTIAL_PROVIDER"
    protocol = {"HTTP": "http/protobuf", "GRPC": "grpc"}[kind]
    env = {ENDPOINT: HOST, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, name: provider}
    if not what:
        check_credentials(env, exporting_of(env))
        return
    with pytest.raises(ConfigError) as caught:
        check_credentials(env, exporting_of(env))
    assert name in caught.value.what
    assert what in caught.value.what
    assert remedy in caught.value.remedy
    assert "secret" not in str(caught.value)


def test_the_provider_of_another_protocol_or_signal_is_nobodys_concern() -> None:
    env = {
        ENDPOINT: HOST,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER": "nowhere",
        "OTEL_PYTHON_EXPORTER_OTLP_GRPC_LOGS_CREDENTIAL_PROVIDER": "nowhere",
    }
    check_credentials(env, exporting_of(env))


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_INSECURE", "OTEL_EXPORTER_OTLP_METRICS_INSECURE"])
def test_what_is_neither_true_nor_false_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}=maybe is not known") as caught:
        exporting_of({ENDPOINT: HOST, name: "maybe"})
    assert "true, false" in caught.value.remedy
    for said in ("", "TRUE", "false"):
        assert exporting_of({ENDPOINT: HOST, name: said}).routes


def test_a_status_that_grpc_does_not_have_stops_the_start() -> None:
    env = {ENDPOINT: HOST, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    name = "OTEL_PYTHON_EXPORTER_OTLP_GRPC_RETRYABLE_ERROR_CODES"
    every = ",".join(status.name for status in grpc.StatusCode)
    assert exporting_of({**env, name: every}).routes
    with pytest.raises(ConfigError, match="=busy is not known"):
        exporting_of({**env, name: "UNAVAILABLE, BUSY"})
