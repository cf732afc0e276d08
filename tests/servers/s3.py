"""An S3 store: the moto server in a process of its own."""

from __future__ import annotations

import sys
import urllib.request
import uuid
from pathlib import Path

from servers.child import Child, answers, spawn
from servers.server import Server

ACCESS_KEY, SECRET_KEY = "penstock", "secret-key"


class Store(Server):
    """A store that forgets everything when it ends.

    with Store() as store:
        path = f"s3://{store.new_bucket()}/orders"
    """

    name = "s3"

    def __init__(self) -> None:
        super().__init__()
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def new_bucket(self) -> str:
        """Create a bucket that no other test uses, and return its name."""
        name = f"b-{uuid.uuid4().hex[:12]}"
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        return name

    def _spawn(self, log: Path) -> Child:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        return spawn(command, log=log, cwd=self.folder)

    def _is_ready(self) -> bool:
        return answers(self.port)
