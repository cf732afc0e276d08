"""Messages over a socket: a length and a pickle. Both ends run the same version of penstock, and know a secret."""

from __future__ import annotations

import hmac
import socket
import struct
from typing import Any

from penstock.circuit.message import dumps, loads

_LENGTH = struct.Struct("<Q")
_PIECE = 1 << 20


def send(connection: socket.socket, message: Any) -> None:
    """Send a message."""
    content = dumps(message)
    if len(content) < _PIECE:
        connection.sendall(_LENGTH.pack(len(content)) + content)
    else:
        connection.sendall(_LENGTH.pack(len(content)))
        connection.sendall(content)


def receive(connection: socket.socket) -> Any:
    """The next message; ConnectionError when the other end is gone."""
    return loads(_read(connection, _LENGTH.unpack(_read(connection, _LENGTH.size))[0]))


def connect(address: tuple[str, int], secret: bytes) -> socket.socket:
    """Connect to a hub."""
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(secret)
    return connection


def accepted(connection: socket.socket, secret: bytes) -> bool:
    """Whether who has connected knows the secret; nothing else is read of anybody."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return hmac.compare_digest(bytes(_read(connection, len(secret))), secret)


def _read(connection: socket.socket, size: int) -> memoryview:
    content = bytearray(size)
    view, at = memoryview(content), 0
    while at < size:
        count = connection.recv_into(view[at:], min(size - at, _PIECE))
        if not count:
            raise ConnectionError("the other end is gone")
        at += count
    return view
