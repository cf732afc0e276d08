"""An S3 store: the moto server in a process of its own."""

from __future__ import annotations

import shutil
import sys
import tempfile
import urllib.request
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from servers.child import Child, answers, free_port, spawn

ACCESS_KEY, SECRET_KEY = "penstock", "secret-key"


class Store:
    """A store that forgets everything when it ends.

    with Store() as store:
        path = f"s3://{store.new_bucket()}/orders"
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-s3-"))
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._child: Child | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def start(self) -> None:
        """Start the store, empty."""
        assert self._child is None, "the store is running"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._child = spawn(command, log=self.folder / "server.log", cwd=self.folder)
        self._child.wait_until(lambda: answers(self.port))

    def stop(self) -> None:
        """End the store in order."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """End the store as a power cut would."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def new_bucket(self) -> str:
        """Create a bucket that no other test uses, and return its name."""
        name = f"b-{uuid.uuid4().hex[:12]}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        return name

    def _remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
