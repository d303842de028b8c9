"""The standard ``OTEL_*`` variables: what is exported, where to, and how. Pure, and needs no library.

Nothing is exported unless an endpoint or an exporter is named: a daemon without a collector has nothing to
complain of. A value that cannot be used stops the start: telemetry that is silently off is missed when it is
needed most.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from acklast.errors import ConfigError
from acklast.telemetry.values import Env, flag, milliseconds, number, one_of, pairs, text

PROTOCOLS: Final = ("grpc", "http/protobuf")
COMPRESSIONS: Final = ("none", "gzip")
SAMPLERS: Final = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)
TEMPORALITIES: Final = ("cumulative", "delta", "lowmemory")
_TEMPORALITY: Final = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_GRPC_PORT: Final = 4317
_PATHS: Final = {"traces": "/v1/traces", "metrics": "/v1/metrics", "logs": "/v1/logs"}
_LEAST_TIMEOUT_MS: Final = 100
_MOST_QUEUED: Final = 1_000_000
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HEADER_VALUE: Final = re.compile(r"[ -~]*")
_AGAIN: Final = "OTEL_PYTHON_EXPORTER_OTLP_GRPC_RETRYABLE_ERROR_CODES"
_STATUSES: Final = (
    *("ok", "cancelled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists"),
    *("permission_denied", "unauthenticated", "resource_exhausted", "failed_precondition", "aborted"),
    *("out_of_range", "unimplemented", "internal", "unavailable", "data_loss"),
)
_FILES: Final = ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")


class Signal(StrEnum):
    """What OpenTelemetry tells apart."""

    TRACES = "traces"
    METRICS = "metrics"
    LOGS = "logs"


class Exporter(StrEnum):
    """Where a signal goes."""

    OTLP = "otlp"
    CONSOLE = "console"
    """Standard output, for a look."""


@dataclass(frozen=True, slots=True)
class Route:
    """The way of one signal out of the process. Repr leaves the headers out: they hold secrets."""

    signal: Signal
    exporter: Exporter
    protocol: str = PROTOCOLS[1]
    endpoint: str = ""
    """The whole URL, with the signal's path where the protocol is HTTP."""
    compression: str = "none"
    timeout_s: float = 10.0
    """For one export, with all its repetitions."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Batching:
    """How what is to be exported is gathered: OTEL_BSP_* for spans, OTEL_BLRP_* for log records."""

    queue: int = 2048
    """What does not fit is dropped, and counted."""
    batch: int = 512
    delay_s: float = 5.0
    """The longest that anything waits for a batch to fill."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which traces are sampled. ``ratio`` is of those that begin here, or of all, as the name says."""

    name: str = "parentbased_always_on"
    ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Exporting:
    """What of this process is exported, and under which name."""

    routes: Mapping[Signal, Route] = field(default_factory=dict)
    service: str = "acklast"
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Of the resource."""
    sampling: Sampling = field(default_factory=Sampling)
    spans: Batching = field(default_factory=Batching)
    records: Batching = field(default_factory=Batching)
    metrics_every_s: float = 60.0
    delta: bool = False
    """Metrics that only grow are told by what they have grown."""


def exporting_of(env: Env) -> Exporting:
    """Read the variables.

    Raises:
        ConfigError: one of them cannot be used; it is named with what is valid.
    """
    if flag(env, "OTEL_SDK_DISABLED"):
        return Exporting()
    routes = {signal: route for signal in Signal if (route := _route(env, signal))}
    if not routes:
        return Exporting()
    attributes = pairs(env, "OTEL_RESOURCE_ATTRIBUTES")
    return Exporting(
        routes=routes,
        service=text(env, "OTEL_SERVICE_NAME") or attributes.get("service.name") or "acklast",
        attributes=attributes,
        sampling=_sampling(env),
        spans=_batching(env, "OTEL_BSP"),
        records=_batching(env, "OTEL_BLRP", delay_ms=1000.0),
        metrics_every_s=milliseconds(env, "OTEL_METRIC_EXPORT_INTERVAL", 60_000.0) / 1000,
        delta=(one_of(env, _TEMPORALITY, TEMPORALITIES) or "cumulative") != "cumulative",
    )


# --- where a signal goes ---------------------------------------------------------------------------------


def _route(env: Env, signal: Signal) -> Route | None:
    exporter = _exporter(env, signal)
    if exporter is None:
        return None
    if exporter is Exporter.CONSOLE:
        return Route(signal, exporter)
    for name in _named("OTEL_EXPORTER_OTLP", signal, "INSECURE"):
        flag(env, name)  # the exporter reads it, and takes whatever is not true for false
    named, both = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    own, shared = _url(env, named), _url(env, both)
    protocol = _of_signal(env, signal, "PROTOCOL", PROTOCOLS) or _usual_protocol(own or shared)
    if protocol == "grpc":
        for code in filter(None, (part.strip() for part in text(env, _AGAIN).split(","))):
            one_of({_AGAIN: code}, _AGAIN, _STATUSES)
        endpoint = own or shared or "http://localhost:4317"
    else:
        endpoint = own or (shared or "http://localhost:4318").rstrip("/") + _PATHS[signal]
    return Route(
        signal,
        exporter,
        protocol,
        endpoint,
        _of_signal(env, signal, "COMPRESSION", COMPRESSIONS) or "none",
        _timeout_s(env, signal),
        _headers(env, "OTEL_EXPORTER_OTLP_HEADERS")
        | _headers(env, f"OTEL_EXPORTER_OTLP_{signal.upper()}_HEADERS"),
    )


def _exporter(env: Env, signal: Signal) -> Exporter | None:
    """By its own variable; else an endpoint is enough, for all but logs: standard error has those."""
    name = f"OTEL_{signal.upper()}_EXPORTER"
    valid = (*Exporter, "none", *(("prometheus",) if signal is Signal.METRICS else ()))
    match one_of(env, name, valid):
        case None:
            named = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
            asked = signal is not Signal.LOGS and any(text(env, one) for one in named)
            return Exporter.OTLP if asked else None
        case "none" | "prometheus":  # the daemon's own /metrics needs no exporter
            return None
        case chosen:
            return Exporter(chosen)


def _usual_protocol(endpoint: str) -> str:
    return "grpc" if endpoint and urlsplit(endpoint).port == _GRPC_PORT else "http/protobuf"


def _url(env: Env, name: str) -> str:
    said = text(env, name)
    if not said:
        return ""
    try:
        parts = urlsplit(said if "://" in said else f"http://{said}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable = usable and not re.search(r"\s", said)
    except ValueError:
        usable = False
    if not usable:
        # Not shown: a URL may have a password in it.
        raise ConfigError(f"{name} is no URL of a collector", "Use http://HOST:PORT or https://HOST:PORT")
    return said if "://" in said else f"http://{said}"


def _of_signal(env: Env, signal: Signal, what: str, valid: tuple[str, ...]) -> str | None:
    """The signal's own variable wins."""
    own = one_of(env, f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", valid)
    return own or one_of(env, f"OTEL_EXPORTER_OTLP_{what}", valid)


def _timeout_s(env: Env, signal: Signal) -> float:
    own, shared = f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"
    # Some SDKs read seconds here: 10 of these would fail every export.
    name = own if text(env, own) else shared
    return milliseconds(env, name, 10_000.0, least=_LEAST_TIMEOUT_MS) / 1000


def _headers(env: Env, name: str) -> dict[str, str]:
    """By small names: gRPC refuses every request that has another one, and HTTP does not mind."""
    headers = {key.lower(): value for key, value in pairs(env, name, secret=True).items()}
    for key, value in headers.items():
        if not _HEADER.fullmatch(key) or not _HEADER_VALUE.fullmatch(value):
            # Not shown: it may be the secret.
            raise ConfigError(
                f"{name} has a header that cannot be sent",
                "Use letters, digits and - in names, ASCII in values",
            )
    return headers


def files_of(env: Env, exporting: Exporting) -> dict[str, str]:
    """The files that the exporters read for TLS, by variable."""
    named = (
        _named("OTEL_EXPORTER_OTLP", route.signal, what) for route in _sent(exporting) for what in _FILES
    )
    return {name: path for names in named for name in names if (path := text(env, name))}


def providers_of(env: Env, exporting: Exporting) -> dict[str, tuple[str, str]]:
    """What the exporters' credentials come from by plug-in: protocol and name, by variable."""
    found = {}
    for route in _sent(exporting):
        kind = route.protocol.partition("/")[0]
        for name in _named(f"OTEL_PYTHON_EXPORTER_OTLP_{kind.upper()}", route.signal, "CREDENTIAL_PROVIDER"):
            if provider := text(env, name):
                found[name] = (kind, provider)
    return found


def _sent(exporting: Exporting) -> list[Route]:
    return [route for route in exporting.routes.values() if route.exporter is Exporter.OTLP]


def _named(prefix: str, signal: Signal, what: str) -> tuple[str, str]:
    """The variable of all signals, and the signal's own."""
    return f"{prefix}_{what}", f"{prefix}_{signal.upper()}_{what}"


# --- the rest --------------------------------------------------------------------------------------------


def _sampling(env: Env) -> Sampling:
    name = one_of(env, "OTEL_TRACES_SAMPLER", SAMPLERS) or SAMPLERS[3]
    if not name.endswith("traceidratio"):
        return Sampling(name)
    return Sampling(name, number(env, "OTEL_TRACES_SAMPLER_ARG", 1.0, least=0.0, most=1.0))


def _batching(env: Env, prefix: str, delay_ms: float = 5000.0) -> Batching:
    queue = number(env, f"{prefix}_MAX_QUEUE_SIZE", 2048, least=1, most=_MOST_QUEUED)
    batch = number(env, f"{prefix}_MAX_EXPORT_BATCH_SIZE", min(512, queue), least=1, most=queue)
    return Batching(queue, batch, milliseconds(env, f"{prefix}_SCHEDULE_DELAY", delay_ms) / 1000)
