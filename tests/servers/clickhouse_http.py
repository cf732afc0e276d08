"""The program of the ClickHouse server of tests: the engine of `chdb` behind ClickHouse's HTTP protocol.

`python clickhouse_http.py PORT FOLDER` serves until it is ended; the folder keeps the tables. Queries run one after the other.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session

USER, PASSWORD = "penstock", "secret"
WORDS = ("query", "database", "user", "password", "wait_end_of_query", "default_format")
STATUS = {516: 403, 60: 404, 81: 404, 62: 400, 36: 400, 115: 404, 159: 408, 202: 503, 252: 503}
_FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*$", re.IGNORECASE)


class Engine:
    """The one session of this process, with the settings of a request while its query runs."""

    def __init__(self, folder: Path) -> None:
        self._session = Session(str(folder / "data"))
        self._lock = threading.Lock()

    def run(
        self, query: str, database: str, settings: dict[str, str], *, fallback: str, body: Path | None
    ) -> bytes:
        """The answer to one query; `body` has the rows of an INSERT, `fallback` is the format when it names none."""
        found = _FORMAT.search(query)
        form = found[1] if found else fallback
        text = query[: found.start()] if found else query
        with self._lock:
            self._do(f"USE {_quoted(database)}")
            try:
                if settings:
                    self._do(
                        "SET " + ", ".join(f"{name} = {_text(value)}" for name, value in settings.items())
                    )
                if body is not None:
                    self._do(f"{text} FROM INFILE {_text(str(body))} FORMAT {form}")
                    return b""
                return self._do(text, form)
            finally:
                for name in settings:
                    self._do(f"SET {name} = DEFAULT")

    def _do(self, text: str, form: str = "TabSeparated") -> bytes:
        answer = self._session.query(text, form)
        return bytes(answer.bytes() or b"") if answer is not None else b""


class Handler(BaseHTTPRequestHandler):
    """One request, as ClickHouse takes it."""

    protocol_version = "HTTP/1.1"
    engine: Engine
    faults: dict[str, int] = {}
    """Exception codes that the next INSERTs are answered with: 'before' or 'after' they are done."""

    def do_GET(self) -> None:
        if self.path == "/ping":
            self._answer(200, b"Ok.\n")
        else:
            self._query(None)

    def do_POST(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            self._receive(file)
            file.flush()
            self._query(Path(file.name))

    def do_PUT(self) -> None:
        """Say which exception comes next, and when: a fault that a test wants."""
        length = int(self.headers["Content-Length"])
        Handler.faults = json.loads(self.rfile.read(length))
        self._answer(200, b"")

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _receive(self, file: Any) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                file.write(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        else:
            file.write(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _query(self, body: Path | None) -> None:
        given = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        credentials = self.headers.get("Authorization", "").removeprefix("Basic ")
        user, _, password = base64.b64decode(credentials).decode().partition(":")
        if (user, password) != (USER, PASSWORD):
            self._refuse(516, f"{user}: Authentication failed: password is incorrect, or there is no user")
            return
        query = given.get("query", "")
        inserts = query.lstrip().upper().startswith("INSERT")
        if body is not None and not inserts:
            query, body = f"{query}{body.read_text()}", None
        settings = {name: value for name, value in given.items() if name not in WORDS}
        if inserts and (code := Handler.faults.pop("before", 0)):
            self._refuse(code, "a fault that the test asked for")
            return
        try:
            answer = self.engine.run(
                query,
                given.get("database", "default"),
                settings,
                fallback=given.get("default_format", "TabSeparated"),
                body=body,
            )
        except Exception as error:
            text = str(error)
            match = re.search(r"Code: (\d+)", text)
            self._refuse(int(match[1]) if match else 1002, text)
            return
        if inserts and (code := Handler.faults.pop("after", 0)):
            self._refuse(code, "a fault that the test asked for")
            return
        self._answer(200, answer)

    def _refuse(self, code: int, text: str) -> None:
        shown = text if text.startswith("Code:") else f"Code: {code}. DB::Exception: {text}"
        self._answer(STATUS.get(code, 500), f"{shown}\n".encode(), {"X-ClickHouse-Exception-Code": str(code)})

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "\\`") + "`"


if __name__ == "__main__":
    Handler.engine = Engine(Path(sys.argv[2]))
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.daemon_threads = True
    server.serve_forever()
