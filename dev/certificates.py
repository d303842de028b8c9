"""Certificates for a broker that speaks TLS: an authority of our own, and what it signs."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev import need

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
_AUTHORITY = "basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"
_LEAF = """\
subjectAltName = IP:127.0.0.1, DNS:localhost
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
authorityKeyIdentifier = keyid
subjectKeyIdentifier = hash
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files in PEM."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority in a directory, which is there already.

    Raises:
        Missing: there is no ``openssl``; the text says how to get it.
    """

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._openssl = need.openssl()
        self._directory = directory
        self._pair = self._at(name)
        extensions = (part for extension in _AUTHORITY for part in ("-addext", extension))
        self._run("req", "-x509", *_KEY, "-subj", f"/CN={name}", *extensions, *self._out(self._pair))

    @property
    def cert(self) -> Path:
        """The authority's own certificate: what trusts it is given this file."""
        return self._pair.cert

    def issue(self, name: str, file: str = "") -> Pair:
        """A certificate for loopback whose common name is ``name``, in files called ``file`` or the same."""
        pair = self._at(file or name)
        request, extensions = pair.cert.with_suffix(".csr"), pair.cert.with_suffix(".ext")
        extensions.write_text(_LEAF)
        self._run("req", *_KEY, "-subj", f"/CN={name}", "-keyout", pair.key, "-out", request)
        signer = ("-CA", self._pair.cert, "-CAkey", self._pair.key, "-CAcreateserial", "-days", "2")
        self._run("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", pair.cert)
        return pair

    def _at(self, name: str) -> Pair:
        return Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")

    @staticmethod
    def _out(pair: Pair) -> tuple[str | Path, ...]:
        return "-keyout", pair.key, "-out", pair.cert

    def _run(self, *arguments: str | Path) -> None:
        subprocess.run([self._openssl, *arguments], check=True, capture_output=True)
