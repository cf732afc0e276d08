"""A small schema registry: ids and subjects over HTTP, as Confluent's answers for them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

INCOMPATIBLE = {
    "error_code": 409,
    "message": "Schema being registered is incompatible with an earlier schema",
}


class Registry:
    """Schemas by id and by subject, until the `with` block ends; `login` is the `user:password` that it wants."""

    def __init__(self, login: str | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(lambda path: registry.answer(path))

            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer(lambda path: registry.take(path, content))

            def _answer(self, of: Callable[[list[str]], Any]) -> None:
                registry.asked.append(self.path)
                wanted = None if login is None else f"Basic {base64.b64encode(login.encode()).decode()}"
                if wanted is not None and self.headers.get("Authorization") != wanted:
                    code, answer = 401, {"error_code": 401}
                else:
                    found = of(unquote(self.path).strip("/").split("/"))
                    code, answer = (404, {"error_code": 40403}) if found is None else (200, found)
                    if found == INCOMPATIBLE:
                        code = 409
                body = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def register(self, subject: str | None, schema: Any, *, number: int | None = None, **more: Any) -> int:
        """Add a schema, to a subject if one is named; return its id."""
        made = number if number is not None else max(self.schemas, default=0) + 1
        self.schemas[made] = {"schema": json.dumps(schema), **more}
        if subject is not None:
            self.subjects.setdefault(subject, []).append(made)
        return made

    def take(self, path: list[str], content: dict[str, Any]) -> Any:
        """Register what was posted, once; a schema of other fields of one name is incompatible."""
        if path[0] != "subjects" or path[2:] != ["versions"]:
            return None
        schema, ids = json.loads(content["schema"]), self.subjects.get(path[1], [])
        for number in ids:
            if json.loads(self.schemas[number]["schema"]) == schema:
                return {"id": number}
        types = {field["name"]: field["type"] for field in schema["fields"]}
        for number in ids:
            for field in json.loads(self.schemas[number]["schema"])["fields"]:
                if types.get(field["name"], field["type"]) != field["type"]:
                    return INCOMPATIBLE
        return {"id": self.register(path[1], schema)}

    def answer(self, path: list[str]) -> Any:
        """What is at a path, or None."""
        if path[:2] == ["schemas", "ids"] and len(path) == 3:
            return self.schemas.get(int(path[2]))
        ids = self.subjects.get(path[1], []) if path[0] == "subjects" and path[2:3] == ["versions"] else []
        if not ids:
            return None
        if len(path) == 3:
            return list(range(1, len(ids) + 1))
        version = len(ids) if path[3] == "latest" else int(path[3])
        number = ids[version - 1]
        return {"subject": path[1], "version": version, "id": number, **self.schemas[number]}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
