"""Where probes ask how a process is: the table ``[health]``. Off where nothing is configured."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from acklast.config.section import Section

LISTEN_RULE: Final = 'an address like "127.0.0.1:8470", "[::1]:8470" or "unix:health.sock"'
_TCP: Final = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+|localhost)):([0-9]{1,5})", re.ASCII)
_UNIX: Final = "unix:"


@dataclass(frozen=True, slots=True)
class Listen:
    """A TCP address, or a Unix socket where ``path`` is set."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def local(self) -> bool:
        """Whether only this host can reach it."""
        return bool(self.path) or ip_address(self.host).is_loopback

    def __str__(self) -> str:
        if self.path:
            return _UNIX + self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Listen:
    """Read an address. Names are not looked up: what they mean could change.

    Raises:
        ValueError: the text is none; the message says what one looks like.
    """
    if text.startswith(_UNIX) and text != _UNIX and "\0" not in text:
        return Listen(path=text.removeprefix(_UNIX))
    if (match := _TCP.fullmatch(text)) is None or not 1 <= int(match[3]) <= 65_535:
        raise ValueError(f"must be {LISTEN_RULE}")
    host = "127.0.0.1" if match[2] == "localhost" else match[1] or match[2]
    try:
        return Listen(str(ip_address(host)), int(match[3]))
    except ValueError:
        raise ValueError(f"must be {LISTEN_RULE}") from None


def _listen(value: Any) -> Any:
    if value is None or isinstance(value, Listen):
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be {LISTEN_RULE}")
    return parse_listen(value)


At = Annotated[Listen | None, BeforeValidator(_listen)]


class Health(Section):
    """One address for each kind of process: they may share a host and a configuration."""

    listen: At = None
    relay_listen: At = None
    scheduler_listen: At = None
    allow_remote: bool = False

    @model_validator(mode="after")
    def _is_local(self) -> Self:
        given = {name: getattr(self, name) for name in ("listen", "relay_listen", "scheduler_listen")}
        remote = [
            (
                name,
                str(at),
                "can be reached from other hosts, without a password: allow_remote = true allows it",
            )
            for name, at in given.items()
            if at is not None and not at.local and not self.allow_remote
        ]
        if remote:
            text = "; ".join(f"{name} {valid}" for name, _, valid in remote)
            raise PydanticCustomError("several", "{text}", {"text": text, "problems": remote})
        return self
