"""A ClickHouse server: the engine of the `chdb` package behind ClickHouse's HTTP protocol, in a process of its own."""

from __future__ import annotations

import base64
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from servers.child import Child, spawn
from servers.server import Server

USER, PASSWORD = "penstock", "secret"


class ClickHouse(Server):
    """A server whose tables outlive `stop` and `kill`, until the `with` block ends.

    with ClickHouse() as server:
        url = server.new_database()
    """

    name = "clickhouse"

    def url(self, database: str = "default") -> str:
        """Return the address of a database."""
        return f"http://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Create a database that no other test uses, and return its address."""
        name = f"d{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, query: str, url: str | None = None) -> list[dict[str, Any]]:
        """Run one statement and return its rows."""
        database = (url or self.url()).rpartition("/")[2]
        given = urllib.parse.urlencode(
            {"query": query, "database": database, "default_format": "JSONEachRow"}
        )
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/?{given}",
            headers={"Authorization": f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                content = answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None
        return [json.loads(line) for line in content.splitlines()]

    def fault(self, when: str, code: int) -> None:
        """Let the next INSERT fail with an exception of ClickHouse's, `before` or `after` it is done."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/", json.dumps({when: code}).encode(), method="PUT"
        )
        urllib.request.urlopen(request, timeout=30).close()

    def _spawn(self, log: Path) -> Child:
        program = Path(__file__).with_name("clickhouse_http.py")
        return spawn([sys.executable, program, str(self.port), self.folder], log=log, cwd=self.folder)

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ping", timeout=2).close()
        except OSError:
            return False
        return True
