"""TLS to the broker: which files, whether they are fit, and how the client library is told of them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlencode

TLS_FILES: Final = ("ca_file", "cert_file", "key_file")

Problem: TypeAlias = tuple[str, str | None, str]
"""A key, its value as it may be shown, and what is valid."""


class Auth(StrEnum):
    """How a connection logs in."""

    PLAIN = "plain"
    """With the user and the password of the URL."""
    EXTERNAL = "external"
    """As the user that the client certificate names."""


@dataclass(frozen=True, slots=True)
class Tls:
    """What ``[broker]`` says of it."""

    ca: Path | None
    cert: Path | None
    key: Path | None
    auth: Auth

    def told_to(self, url: str) -> str:
        """The URL with what the client library and the management API's reader take from its query.

        The files are read at each connection, so that those of now are used. What stands in the query
        already goes first.
        """
        auth = self.auth.value if self.auth is Auth.EXTERNAL else None
        said = {"cafile": self.ca, "certfile": self.cert, "keyfile": self.key, "auth": auth}
        query = urlencode({name: str(value) for name, value in said.items() if value is not None})
        return f"{url}{'&' if '?' in url else '?'}{query}" if query else url

    def problems(self, urls: Sequence[str]) -> Iterator[Problem]:
        """What does not fit together, and which file cannot be used."""
        files = self._files()
        if not all(url.startswith("amqps:") for url in urls):
            yield from ((key, str(path), _ONLY_TLS) for key, path in files.items())
            if self.auth is Auth.EXTERNAL:
                yield "auth", self.auth.value, _ONLY_TLS
        if self.auth is Auth.EXTERNAL and self.cert is None:
            yield "auth", self.auth.value, "logs in by certificate: set cert_file, and key_file with it"
        if self.key is not None and self.cert is None:
            yield "key_file", str(self.key), "belongs to a certificate: set cert_file too"
        unread = list(_unread(files))
        yield from unread or self._unfit()

    def _files(self) -> dict[str, Path]:
        files = zip(TLS_FILES, (self.ca, self.cert, self.key), strict=True)
        return {key: path for key, path in files if path is not None}

    def _unfit(self) -> Iterator[Problem]:
        """What is in files that can be read: asked of the library that is going to use them."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.ca is not None:
                context.load_verify_locations(cafile=self.ca)
        except ssl.SSLError:
            yield "ca_file", str(self.ca), "must be a file of certificates in PEM"
        try:
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, password=_nobody_to_ask)
        except _Encrypted:
            yield self._held_key("is encrypted, and there is nobody to ask: give the key unencrypted")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                yield self._held_key("is not the key of the certificate in cert_file")
            else:
                yield "cert_file", str(self.cert), "must be a certificate in PEM, and key_file its key"

    def _held_key(self, valid: str) -> Problem:
        return "key_file" if self.key else "cert_file", str(self.key or self.cert), valid


_ONLY_TLS: Final = "goes with TLS alone: begin every URL with amqps://"


def _unread(files: dict[str, Path]) -> Iterator[Problem]:
    for key, path in files.items():
        try:
            path.read_bytes()
        except OSError as error:
            yield key, str(path), f"cannot be read: {error.strerror}. The daemon's user must be able to"
        except ValueError:
            yield key, str(path), "must be a file's name"


class _Encrypted(Exception):  # noqa: N818 - named for what is true
    pass


def _nobody_to_ask() -> str:
    """Instead of a question on the terminal, which would hold the daemon up for ever."""
    raise _Encrypted
