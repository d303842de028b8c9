"""The standard ``OTEL_*`` variables: what is exported, where to, and how. Pure, and needs no library.

Nothing is exported unless an endpoint or an exporter is named: a daemon without a collector has nothing to
complain of. A value that cannot be used stops the start: telemetry that is silently off is missed when it is
needed most.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from acklast.errors import ConfigError

Env = Mapping[str, str]
N = TypeVar("N", int, float)

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
_LONGEST_MS: Final = 86_400_000.0
"""A day. What is far longer no clock of a thread can wait for, and the thread would end."""
_MOST_QUEUED: Final = 1_000_000
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HEADER_VALUE: Final = re.compile(r"[ -~]*")
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
    if _flag(env, "OTEL_SDK_DISABLED"):
        return Exporting()
    routes = {signal: route for signal in Signal if (route := _route(env, signal))}
    if not routes:
        return Exporting()
    attributes = _pairs(env, "OTEL_RESOURCE_ATTRIBUTES")
    return Exporting(
        routes=routes,
        service=_text(env, "OTEL_SERVICE_NAME") or attributes.get("service.name") or "acklast",
        attributes=attributes,
        sampling=_sampling(env),
        spans=_batching(env, "OTEL_BSP"),
        records=_batching(env, "OTEL_BLRP", delay_ms=1000.0),
        metrics_every_s=_milliseconds(env, "OTEL_METRIC_EXPORT_INTERVAL", 60_000.0) / 1000,
        delta=(_one_of(env, _TEMPORALITY, TEMPORALITIES) or "cumulative") != "cumulative",
    )


# --- where a signal goes ---------------------------------------------------------------------------------


def _route(env: Env, signal: Signal) -> Route | None:
    exporter = _exporter(env, signal)
    if exporter is None:
        return None
    if exporter is Exporter.CONSOLE:
        return Route(signal, exporter)
    named, both = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    own, shared = _url(env, named), _url(env, both)
    protocol = _of_signal(env, signal, "PROTOCOL", PROTOCOLS) or _usual_protocol(own or shared)
    if protocol == "grpc":
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
    match _one_of(env, name, valid):
        case None:
            named = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
            asked = signal is not Signal.LOGS and any(_text(env, one) for one in named)
            return Exporter.OTLP if asked else None
        case "none" | "prometheus":  # the daemon's own /metrics needs no exporter
            return None
        case chosen:
            return Exporter(chosen)


def _usual_protocol(endpoint: str) -> str:
    return "grpc" if endpoint and urlsplit(endpoint).port == _GRPC_PORT else "http/protobuf"


def _url(env: Env, name: str) -> str:
    text = _text(env, name)
    if not text:
        return ""
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable = usable and not re.search(r"\s", text)
    except ValueError:
        usable = False
    if not usable:
        # Not shown: a URL may have a password in it.
        raise ConfigError(f"{name} is no URL of a collector", "Use http://HOST:PORT or https://HOST:PORT")
    return text if "://" in text else f"http://{text}"


def _of_signal(env: Env, signal: Signal, what: str, valid: tuple[str, ...]) -> str | None:
    """The signal's own variable wins."""
    own = _one_of(env, f"OTEL_EXPORTER_OTLP_{signal.upper()}_{what}", valid)
    return own or _one_of(env, f"OTEL_EXPORTER_OTLP_{what}", valid)


def _timeout_s(env: Env, signal: Signal) -> float:
    own, shared = f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"
    # Some SDKs read seconds here: 10 of these would fail every export.
    name = own if _text(env, own) else shared
    return _milliseconds(env, name, 10_000.0, least=_LEAST_TIMEOUT_MS) / 1000


def _headers(env: Env, name: str) -> dict[str, str]:
    """By small names: gRPC refuses every request that has another one, and HTTP does not mind."""
    headers = {key.lower(): value for key, value in _pairs(env, name, secret=True).items()}
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
    prefixes = ["OTEL_EXPORTER_OTLP"] + [
        f"OTEL_EXPORTER_OTLP_{route.signal.upper()}" for route in exporting.routes.values()
    ]
    names = [f"{prefix}_{what}" for prefix in prefixes for what in _FILES]
    return {name: path for name in names if exporting.routes and (path := _text(env, name))}


# --- the rest --------------------------------------------------------------------------------------------


def _sampling(env: Env) -> Sampling:
    name = _one_of(env, "OTEL_TRACES_SAMPLER", SAMPLERS) or SAMPLERS[3]
    if not name.endswith("traceidratio"):
        return Sampling(name)
    return Sampling(name, _number(env, "OTEL_TRACES_SAMPLER_ARG", 1.0, least=0.0, most=1.0))


def _batching(env: Env, prefix: str, delay_ms: float = 5000.0) -> Batching:
    queue = _number(env, f"{prefix}_MAX_QUEUE_SIZE", 2048, least=1, most=_MOST_QUEUED)
    batch = _number(env, f"{prefix}_MAX_EXPORT_BATCH_SIZE", min(512, queue), least=1, most=queue)
    return Batching(queue, batch, _milliseconds(env, f"{prefix}_SCHEDULE_DELAY", delay_ms) / 1000)


def _text(env: Env, name: str) -> str:
    """An empty variable is an unset one."""
    return env.get(name, "").strip()


def _flag(env: Env, name: str) -> bool:
    return (_one_of(env, name, ("true", "false")) or "false") == "true"


def _one_of(env: Env, name: str, valid: tuple[str, ...]) -> str | None:
    text = _text(env, name).lower()
    if not text:
        return None
    if text not in valid:
        raise ConfigError(f"{name}={text} is not known", f"Use one of: {', '.join(valid)}")
    return text


def _milliseconds(env: Env, name: str, default: float, least: float = 1.0) -> float:
    return _number(env, name, default, least=least, most=_LONGEST_MS, unit=" of milliseconds")


def _number(env: Env, name: str, default: N, *, least: float, most: float = math.inf, unit: str = "") -> N:
    text = _text(env, name)
    if not text:
        return default
    try:
        number = type(default)(text)
    except ValueError:
        number = type(default)(-1)
    if not least <= number <= most:
        to = f"from {least:g} to {most:.9g}" if most < math.inf else f"of {least:g} or more"
        whole = "a whole number" if isinstance(default, int) else "a number"
        raise ConfigError(f"{name}={text} is not valid", f"Use {whole}{unit} {to}")
    return number


def _pairs(env: Env, name: str, *, secret: bool = False) -> dict[str, str]:
    """``a=1,b=2``, percent-encoded as W3C Baggage has it."""
    pairs = {}
    for item in filter(None, (part.strip() for part in _text(env, name).split(","))):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            shown = "an item" if secret else f"{item!r}"
            raise ConfigError(f"{name} has {shown} that is no pair", "Use KEY=VALUE,KEY=VALUE")
        pairs[unquote(key.strip())] = unquote(value.strip())
    return pairs
