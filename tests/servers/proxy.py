"""A way to a server that can be cut: everything that goes through is passed on, until it is not."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Proxy:
    """Listens on a port of its own and passes on to another one; `cut` ends all connections and refuses others until `mend`."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = _listening(0)
        self.port: int = self._listener.getsockname()[1]
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._accept(self._listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Nobody comes through any more."""
        with self._lock:
            _shut(self._listener)
            for end in self._ends:
                _shut(end)
            self._ends.clear()

    def mend(self) -> None:
        """Let others through again."""
        self._listener = _listening(self.port)
        self._accept(self._listener)

    def _accept(self, listener: socket.socket) -> None:
        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    server = socket.create_connection(("127.0.0.1", self._server))
                    with self._lock:
                        self._ends |= {client, server}
                    for one, other in ((client, server), (server, client)):
                        threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()

        threading.Thread(target=run, daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while content := one.recv(1 << 16):
            other.sendall(content)
    _shut(one)
    _shut(other)


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
