"""The table ``[lanes.<name>.http]``: the request that a lane sends, and what its answers mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from acklast.config.section import Section
from acklast.http.classify import Meaning, StatusRules, status_key

if TYPE_CHECKING:
    from acklast.http.request import RequestTemplate

EXCERPT_BYTES: Final = 1024
"""The most of an answer that is kept: as JSON with every character escaped it still fits into a result."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_OURS: Final = frozenset(
    {"connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect"}
)
"""Headers that frame the message: set by a template they could make one request look like two."""

Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


def _secret_name(name: str) -> str:
    if _NAME.match(name) is None:
        raise ValueError("must be a name of letters, digits and '_', as secrets.<name> can say it")
    return name


def _header_name(name: str) -> str:
    if _TOKEN.match(name) is None:
        raise ValueError("is no header's name")
    if name.lower() in _OURS:
        raise ValueError("is set by acklast alone: it frames the message")
    return name


def _idempotency_header(value: str) -> str:
    return _header_name(value) if value else value


class Http(Section):
    """One request per job. ``load`` has read the secrets' files and made ``ca_file`` absolute."""

    url: str
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: Mapping[Annotated[str, AfterValidator(_header_name)], str] = Field(default_factory=dict)
    json_body: Any = Field(default=None, alias="json")
    body: str | None = None
    secrets: Mapping[Annotated[str, AfterValidator(_secret_name)], SecretStr] = Field(default_factory=dict)
    idempotency_header: Annotated[str, AfterValidator(_idempotency_header)] = "Idempotency-Key"
    status: Mapping[Annotated[str, AfterValidator(status_key)], Meaning] = Field(default_factory=dict)
    connect_timeout_s: Seconds = 5.0
    read_timeout_s: Seconds = 30.0
    timeout_s: Seconds | None = None
    keep_alive_s: Annotated[float, Field(ge=0, le=3600)] = 15.0
    max_redirects: Annotated[int, Field(ge=0, le=10)] = 0
    ca_file: Path | None = None
    excerpt_bytes: Annotated[int, Field(ge=0, le=EXCERPT_BYTES)] = 0

    @field_validator("method", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("ca_file")
    @classmethod
    def _holds_authorities(cls, value: Path | None) -> Path | None:
        if value is not None:
            _check_authorities(value)
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        found = list(self._problems())
        if found:
            text = "; ".join(f"{key} {why}" for key, why in found)
            # No value comes along: a header's may be a secret that was written where it should not be.
            told = [(key, None, why) for key, why in found]
            raise PydanticCustomError("several", "{text}", {"text": text, "problems": told})
        return self

    def _problems(self) -> Iterator[tuple[str, str]]:
        # Only here and in ``request``: a configuration without HTTP lanes needs no templates.
        from acklast.http.request import problems

        yield from problems(self.url, self.headers, self.json_body, self.body, self.secrets)
        if self.json_body is not None and self.body is not None:
            yield "body", "is given besides json: keep one"
        lower = [name.lower() for name in self.headers]
        for name in {name for name in lower if lower.count(name) > 1}:
            yield "headers", f"names {name} twice"

    def request(self, lane: str) -> RequestTemplate:
        """The compiled request."""
        from acklast.http.request import RequestTemplate

        return RequestTemplate.of(
            lane,
            method=self.method,
            url=self.url,
            headers=self.headers,
            json_body=self.json_body,
            text_body=self.body,
            secrets={name: secret.get_secret_value() for name, secret in self.secrets.items()},
        )

    def rules(self) -> StatusRules:
        """What the answers mean."""
        return StatusRules(self.status)


def _check_authorities(path: Path) -> None:
    import ssl  # only here: a configuration without HTTP lanes needs no TLS

    try:
        ssl.create_default_context(cafile=str(path))
    except ssl.SSLError:
        raise ValueError("must be a file of certificates in PEM") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
