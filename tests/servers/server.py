"""What all test servers share: a folder, a port and a process that is there while the `with` block lasts."""

from __future__ import annotations

import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from servers.child import Child, free_port


class Server(ABC):
    """A server whose folder outlives `stop` and `kill`, until the `with` block ends."""

    name: ClassVar[str]
    ends_at: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"penstock-{self.name}-"))
        self.port = free_port()
        self._child: Child | None = None

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} is not running"
        return self._child.pid

    def start(self) -> None:
        """Start the server, again after `stop` or `kill`, on the same port and in the same folder."""
        assert self._child is None, f"{self.name} is running"
        self._child = self._spawn(self.folder / "server.log")
        self._child.wait_until(self._is_ready)

    def stop(self) -> None:
        """End the server in order."""
        if self._child is not None:
            self._child.stop(self.ends_at)
            self._child = None

    def kill(self) -> None:
        """End the server as a power cut would."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _prepare(self) -> None:  # noqa: B027  # most servers need nothing
        """Called once, before the first start."""

    @abstractmethod
    def _spawn(self, log: Path) -> Child:
        """Called by each start; returns the process."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Called until it says that the server answers."""

    def _remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
