"""Publishes what no client library would: content headers made by hand, over a socket of its own."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote, urlsplit

import pamqp.frame
from pamqp import base, commands

_TIMEOUT_S: Final = 60.0
_FRAME_MAX: Final = 131_072
_PUBLISH: Final = struct.pack(">HHH", 60, 40, 0)
_MANDATORY: Final = b"\x01"
_CHANNEL: Final = 1


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker closed the channel or the connection over a message, which so never was one."""

    code: int
    text: str


class RawPublisher:
    """One connection in confirm mode, opened again after each refusal. Blocking: use it in a thread."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def publish(self, exchange: str, routing_key: bytes, properties: bytes, body: bytes) -> Refused | None:
        """Publish one message and wait for the broker's word; None where it confirmed.

        ``properties``: the flags and what follows them in the content header.
        """
        name = exchange.encode()
        method = _PUBLISH + bytes((len(name),)) + name + bytes((len(routing_key),)) + routing_key + _MANDATORY
        header = struct.pack(">HHQ", 60, 0, len(body)) + properties
        step = _FRAME_MAX - 8
        bodies = [_frame(3, body[at : at + step]) for at in range(0, len(body), step)]
        try:
            self._socket.sendall(b"".join((_frame(1, method), _frame(2, header), *bodies)))
            refused = self._answer()
        except ConnectionError as error:
            refused = Refused(0, str(error))
        if refused is not None:
            self._socket.close()
            self._open()
        return refused

    def _answer(self) -> Refused | None:
        while True:
            match self._frame():
                case commands.Basic.Ack():
                    return None
                case commands.Basic.Return() as returned:
                    raise AssertionError(f"in no queue: {returned.reply_text}")
                case commands.Basic.Nack():
                    raise AssertionError("the broker could not keep it")
                case commands.Channel.Close() | commands.Connection.Close() as close:
                    return Refused(close.reply_code or 0, close.reply_text)

    def _open(self) -> None:
        url = self._url
        self._socket = socket.create_connection((url.hostname, url.port), timeout=_TIMEOUT_S)
        self._received = b""
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(commands.Connection.Start)
        login = f"\0{unquote(url.username or '')}\0{unquote(url.password or '')}"
        self._send(commands.Connection.StartOk({}, "PLAIN", login, "en_US"), 0)
        self._expect(commands.Connection.Tune)
        self._send(commands.Connection.TuneOk(10, _FRAME_MAX, 0), 0)
        self._send(commands.Connection.Open(unquote(url.path[1:]) or "/"), 0)
        self._expect(commands.Connection.OpenOk)
        self._send(commands.Channel.Open(), _CHANNEL)
        self._expect(commands.Channel.OpenOk)
        self._send(commands.Confirm.Select(), _CHANNEL)
        self._expect(commands.Confirm.SelectOk)

    def _send(self, method: base.Frame, channel: int) -> None:
        self._socket.sendall(pamqp.frame.marshal(method, channel))

    def _expect(self, kind: type[base.Frame]) -> None:
        found = self._frame()
        assert isinstance(found, kind), found

    def _frame(self) -> object:
        head = self._read(7)
        return pamqp.frame.unmarshal(head + self._read(int.from_bytes(head[3:], "big") + 1))[2]

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            more = self._socket.recv(65_536)
            if not more:
                raise ConnectionError("the broker closed the connection")
            self._received += more
        found, self._received = self._received[:size], self._received[size:]
        return found


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, _CHANNEL, len(payload)) + payload + b"\xce"
