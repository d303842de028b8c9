"""Why a broker could not be used, in words, and what to do about it.

The client library shows half of what a broker or TLS says as numbers and mere objects.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from aiormq.exceptions import AuthenticationError, InvalidFrameError, ProbableAuthenticationError

TRUST: Final = (
    "have the file of certificate authorities (`ca_file`, in a URL `cafile`) name the one that signed the "
    "broker's certificate, and the URL a host that the certificate is for"
)
SHOW: Final = (
    "give a client certificate (`cert_file` and `key_file`, in a URL `certfile` and `keyfile`) that is valid "
    "and signed by an authority that the broker trusts"
)
_MAYBE_SHOW: Final = f"if the broker asks for one, {SHOW}"
_SPEAK: Final = "see whether that port speaks TLS: `amqps` in the URL if it does, `amqp` if not"
_NAME_IT: Final = "have the broker know a user by the name in the certificate, and give it its permissions"
_PASSWORD: Final = "correct user and password of the URL, or set them on the broker"  # noqa: S105 - words
_MECHANISM: Final = (
    "have the broker offer this login: `auth_mechanisms`, for EXTERNAL with the plugin "
    "rabbitmq_auth_mechanism_ssl and by `amqps` alone"
)
_VHOST: Final = "create the virtual host on the broker, give the user its permissions there, or name another"
_FILES: Final = "see that the files of certificates and keys are there and can be read"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one address could not be used. Shows no password."""

    what: str
    remedy: str = ""
    final: bool = False
    """It is a matter of configuration: the broker is there, and trying again changes nothing."""


def refusal_of(error: BaseException, url: str) -> Refusal:
    """What the failure of a connect to ``url`` means."""
    parts = urlsplit(url)
    secure = parts.scheme == "amqps"
    if isinstance(error, ProbableAuthenticationError):
        return Refusal(str(error), _NAME_IT if " EXTERNAL" in str(error) else _PASSWORD, final=True)
    if isinstance(error, AuthenticationError):
        offered = error.args[0] if error.args else "nothing"
        return Refusal(f"it takes no such login, only {offered}", _MECHANISM, final=True)
    if isinstance(error, InvalidFrameError) and "Connection.OpenOk" in str(error):
        vhost = unquote(parts.path.removeprefix("/")) or "/"
        user = unquote(parts.username or "")
        return Refusal(f"it does not open virtual host {vhost!r} for user {user!r}", _VHOST)
    if tls := next((one for one in _causes(error) if isinstance(one, ssl.SSLError)), None):
        return _by_tls(tls)
    said = str(error) or type(error).__name__
    if secure and isinstance(error, FileNotFoundError | PermissionError) and error.filename is None:
        return Refusal(said, _FILES)
    if any(sign in said for sign in ("connection reset", "unexpectedly closed")):
        # A broker that misses a certificate says so after its part of the handshake, and may hang up first.
        return Refusal(said, _MAYBE_SHOW if secure else _SPEAK)
    return Refusal(said)


def _by_tls(error: ssl.SSLError) -> Refusal:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refusal(f"its certificate is not trusted: {error.verify_message}", TRUST, final=True)
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        said = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return Refusal(f"it refuses the client certificate, or misses one: {said}", SHOW, final=True)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return Refusal("it does not speak TLS there", _SPEAK)
    return Refusal(f"TLS failed: {reason or error}")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def remedies(refusals: list[Refusal]) -> str:
    """What to do about all of them, each thing once; empty where there is nothing special to do."""
    known = list(dict.fromkeys(refusal.remedy for refusal in refusals if refusal.remedy))
    text = "; ".join(known)
    return text[:1].upper() + text[1:]
