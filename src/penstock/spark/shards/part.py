"""Parts of checkpoints on their way from the worker that has a shard to the driver, which writes them: bytes over a
connection to the hub, while ticks go on."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping

from penstock.circuit.message import piece
from penstock.spark.shards import wire
from penstock.state.data_file import Json
from penstock.state.part import StagedPart

LOG = logging.getLogger("penstock.flow")
_PIECE = 1 << 20  # bytes that are sent at once
# Whoever goes away without a word, as a machine without power does, must not hold a checkpoint up for ever.
_SILENT_SECONDS = 300.0


class ReceivedPart:
    """A part whose states are in a worker."""

    def __init__(self, file: str, connection: socket.socket) -> None:
        self.file = file
        self._connection = connection
        self._states: Mapping[str, Json] = {}
        connection.settimeout(_SILENT_SECONDS)

    def content(self) -> Iterator[memoryview]:
        wire.send(self._connection, True)
        while True:
            kind, content = wire.receive(self._connection)
            if kind == "states":
                self._states = content
                return
            yield memoryview(content)

    def states(self) -> Mapping[str, Json]:
        wire.send(self._connection, True)
        return self._states

    def close(self) -> None:
        self._connection.close()


def begin(part: StagedPart, address: tuple[str, int], secret: bytes) -> tuple[str, str]:
    """Give a part to the hub in a thread; returns the name of its connection, and that of its file."""
    token = uuid.uuid4().hex
    connection = wire.connect(address, secret)
    try:
        wire.send(connection, (token, 0))
        wire.receive(connection)
    except BaseException:
        connection.close()
        raise
    threading.Thread(
        target=_give, args=(part, connection), name="penstock-shard-checkpoint", daemon=True
    ).start()
    return token, part.file


def _give(part: StagedPart, connection: socket.socket) -> None:
    # Somebody who needs the part no more closes the connection.
    with connection, contextlib.suppress(ConnectionError):
        try:
            wire.receive(connection)
            for content in _joined(part.content()):
                wire.send(connection, ("content", piece(content)))
            wire.send(connection, ("states", part.described))
            wire.receive(connection)
            part.states()
        except ConnectionError:
            raise
        except Exception:
            LOG.warning("the part of a shard in a checkpoint could not be given", exc_info=True)


def _joined(content: Iterator[memoryview]) -> Iterator[bytes | memoryview]:
    """Small pieces together, large ones as they are."""
    waiting = bytearray()
    for own in content:
        if own.nbytes < _PIECE:
            waiting += own
        if len(waiting) >= _PIECE or (waiting and own.nbytes >= _PIECE):
            yield bytes(waiting)
            waiting.clear()
        if own.nbytes >= _PIECE:
            yield own
    if waiting:
        yield bytes(waiting)
