"""The messages between a task and its process of Deno: JSON texts with their length before them."""

from __future__ import annotations

import struct
from enum import IntEnum


class MessageKind(IntEnum):
    """What a message of the host is about."""

    READY = ord("R")
    """The script is loaded."""
    PART = ord("P")
    """Some rows of a batch."""
    DONE = ord("D")
    """The batch is done; the rows that failed."""
    ROW = ord("N")
    """The number of the row that comes next, where the request wants it."""


_HEAD = struct.Struct(">BI")
_LENGTH = struct.Struct(">I")


def request(body: bytes) -> bytes:
    """Return a message to the host."""
    return _LENGTH.pack(len(body)) + body


class MessageReader:
    """Messages out of the bytes as they arrive."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[tuple[MessageKind, bytes]]:
        """Return the messages that are complete with these bytes."""
        self._bytes += data
        messages = []
        at = 0
        while len(self._bytes) - at >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._bytes, at)
            end = at + _HEAD.size + length
            if len(self._bytes) < end:
                break
            messages.append((MessageKind(kind), bytes(self._bytes[at + _HEAD.size : end])))
            at = end
        del self._bytes[:at]
        return messages
