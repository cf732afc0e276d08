"""Messages over a socket: a length and a pickle. Both ends run the same version of penstock, and know a secret."""

from __future__ import annotations

import hmac
import socket
import struct
from typing import Any

from penstock.circuit.message import joined, parts

_LENGTH = struct.Struct("<Q")
_PIECE = 1 << 20


def send(connection: socket.socket, message: Any) -> None:
    """Send a message: how many pieces it has, how long each is, and the pieces."""
    content, beside = parts(message)
    lengths = [len(content), *(piece.nbytes for piece in beside)]
    head = b"".join(map(_LENGTH.pack, (len(lengths), *lengths)))
    connection.sendall(head + content)
    for piece in beside:
        connection.sendall(piece)


def receive(connection: socket.socket) -> Any:
    """The next message; ConnectionError when the other end is gone."""
    count = _LENGTH.unpack(_read(connection, _LENGTH.size))[0]
    lengths = [length for (length,) in _LENGTH.iter_unpack(_read(connection, count * _LENGTH.size))]
    content, *beside = (_read(connection, length) for length in lengths)
    return joined(content, beside)


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
