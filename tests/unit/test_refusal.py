"""What the client library's errors mean: words and a remedy for each, and no password in any."""

from __future__ import annotations

import ssl

import pytest
from aiormq.exceptions import (
    AMQPConnectionError,
    AuthenticationError,
    InvalidFrameError,
    ProbableAuthenticationError,
)

from acklast_topology.refusal import Refusal, refusal_of, remedies

URL = "amqps://robot:s3cret@rabbit:5671/a%2Fb"


def alert(reason: str) -> AMQPConnectionError:
    """As the library passes on what TLS says after the handshake."""
    error = AMQPConnectionError("Server communication error")
    error.__cause__ = ssl.SSLError(1, f"[SSL: {reason}] alert")
    error.__cause__.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "what", "remedy", "final"),
    [
        (ProbableAuthenticationError("ACCESS_REFUSED - using mechanism PLAIN"), "PLAIN", "password", True),
        (ProbableAuthenticationError("ACCESS_REFUSED - mechanism EXTERNAL"), "EXTERNAL", "a user by", True),
        (AuthenticationError("PLAIN AMQPLAIN", ["PLAIN"]), "only PLAIN AMQPLAIN", "auth_mechanisms", True),
        (alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "certificate required", "cert_file", True),
        (alert("TLSV1_ALERT_UNKNOWN_CA"), "unknown ca", "cert_file", True),
        (alert("SSLV3_ALERT_CERTIFICATE_EXPIRED"), "certificate expired", "cert_file", True),
        (alert("TLSV1_ALERT_PROTOCOL_VERSION"), "TLSV1_ALERT_PROTOCOL_VERSION", "", False),
        (FileNotFoundError(2, "No such file"), "No such file", "files of certificates", False),
        (ConnectionRefusedError(111, "Connect call failed"), "Connect call failed", "", False),
        (AMQPConnectionError("Server connection reset: x"), "reset", "if the broker asks for one", False),
        (InvalidFrameError("Expected ['Connection.OpenOk']"), "'a/b' for user 'robot'", "virtual", False),
        (TimeoutError(), "TimeoutError", "", False),
    ],
)
def test_each_error_has_words_and_a_remedy(error: BaseException, what: str, remedy: str, final: bool) -> None:
    refusal = refusal_of(error, URL)
    assert what in refusal.what
    assert remedy in refusal.remedy if remedy else not refusal.remedy
    assert refusal.final is final
    assert "s3cret" not in f"{refusal}"


def test_who_is_hung_up_on_without_tls_is_told_to_look_at_the_port() -> None:
    error = AMQPConnectionError("Server connection unexpectedly closed. Read 0 bytes but 1 bytes expected")
    assert "`amqps` in the URL" in refusal_of(error, "amqp://rabbit/").remedy


def test_each_remedy_is_said_once() -> None:
    assert remedies(
        [Refusal("a", "do this"), Refusal("b"), Refusal("c", "do this"), Refusal("d", "or that")]
    ) == ("Do this; or that")
    assert remedies([Refusal("a")]) == ""
