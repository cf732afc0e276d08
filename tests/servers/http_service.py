"""A service over HTTP whose answers the test decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Respond = Callable[[Any], Any]
"""From what was posted to what is answered: bytes as they are, anything else as JSON, or a status with either."""


class HttpService(ThreadingHTTPServer):
    """Keeps what it is sent, and answers what `respond` returns; statuses in `refusals` come first."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond: Respond = lambda body: body
        self.refusals: list[int] = []
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}/rows?token=t0ps3cret"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpService

    def do_POST(self) -> None:
        service = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with service.lock:
            refusal = service.refusals.pop(0) if service.refusals else 200
            service.at_once += 1
            service.most_at_once = max(service.most_at_once, service.at_once)
            service.bodies.append(body)
            service.headers.append(dict(self.headers))
        answer: Any = b"not now"
        try:
            if refusal == 200:
                answer = service.respond(body)
                if isinstance(answer, tuple):
                    refusal, answer = answer
        finally:
            with service.lock:
                service.at_once -= 1
        if refusal == 0:
            self.close_connection = True
            return
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(refusal)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass
