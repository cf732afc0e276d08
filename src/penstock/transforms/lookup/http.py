"""Look-ups at an HTTP service: one request per key, several at once, or one for many keys.

The answer of a key is JSON text; Spark reads it in the types that the user names.
"""

from __future__ import annotations

import http.client
import json
import queue
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from penstock.errors import ConnectorError
from penstock.transforms.lookup.keyed import Answer, Key, LookupClient, RefusedKey, Row, retrying

_SHOWN = 200
_BUSY = (408, 425, 429)
_NOBODY = (401, 403, 405, 407)
"""Answers that no key would change."""
_NONE = (204, 404, 410)


@dataclass(frozen=True)
class HttpBackend:
    """A service and how it is asked."""

    url: str = field(repr=False)
    method: str
    names: tuple[str, ...]
    """Of the columns of the rows, which stand in the address in braces."""
    keys: tuple[str, ...]
    """Of the fields of the key in requests and answers."""
    headers: Mapping[str, str] = field(repr=False)
    parallelism: int
    batch_size: int
    timeout: float
    retry_for: float

    @property
    def kinds(self) -> Sequence[str]:
        return ["string"]

    @property
    def where(self) -> str:
        """The service, without what may be secret in its address."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def connect(self) -> LookupClient:
        return HttpClient(self)


class HttpClient:
    """Connections that stay open from one batch of rows to the next."""

    def __init__(self, backend: HttpBackend) -> None:
        self._backend = backend
        parts = urlsplit(backend.url)
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname or "", parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Accept": "application/json", "User-Agent": "penstock", **backend.headers}
        self._idle: queue.SimpleQueue[http.client.HTTPConnection] = queue.SimpleQueue()

    def fetch(self, keys: Sequence[Key]) -> Mapping[Key, Answer]:
        if self._backend.method == "POST":
            size = self._backend.batch_size
            parts = (keys[first : first + size] for first in range(0, len(keys), size))
            return {
                key: answer
                for part in parts
                for key, answer in self._retrying(lambda part=part: self._post(part)).items()
            }
        with ThreadPoolExecutor(min(self._backend.parallelism, max(1, len(keys)))) as pool:
            answers = pool.map(lambda key: self._retrying(lambda: self._get(key)), keys)
            return {key: answer for key, answer in zip(keys, answers, strict=True) if answer is not None}

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def _retrying(self, action: Any) -> Any:
        return retrying(
            action,
            seconds=self._backend.retry_for,
            description=self._backend.where,
            transient=_transient,
        )

    def _get(self, key: Key) -> Answer | None:
        values = {
            name: quote(_text(value), safe="") for name, value in zip(self._backend.names, key, strict=True)
        }
        status, body, reason = self._request("GET", self._path.format_map(values), None)
        if status in _NONE:
            return None
        if status >= 300:
            return RefusedKey(f"the service answers {reason}")
        try:
            answer = json.loads(body)
        except ValueError:
            return RefusedKey(f"the service answers what is no JSON: {_shown(body)}")
        if answer is None:
            return None
        if not isinstance(answer, dict):
            return RefusedKey(f"the service answers no object: {_shown(body)}")
        return Row((body.decode("utf-8"),))

    def _post(self, keys: Sequence[Key]) -> dict[Key, Answer]:
        requested = [dict(zip(self._backend.keys, map(_plain, key), strict=True)) for key in keys]
        by_text = {_identity(item.values()): key for item, key in zip(requested, keys, strict=True)}
        status, body, reason = self._request("POST", self._path, json.dumps(requested).encode())
        if status >= 300:
            raise self._refusal(reason)
        answers: dict[Key, Answer] = {}
        for item, text in self._items(body):
            identity = _identity(item.get(name) for name in self._backend.keys)
            key = by_text.get(identity)
            if key is None:
                raise self._refusal(f"with an object that has none of the keys: {_shown(text.encode())}")
            answers[key] = RefusedKey("several objects have the key") if key in answers else Row((text,))
        return answers

    def _items(self, body: bytes) -> Iterator[tuple[dict[str, Any], str]]:
        """The objects of an array, each with its own text, which has all digits of its numbers."""
        text = body.decode("utf-8", errors="replace")
        decoder, at = json.JSONDecoder(), _skip(text, 0)
        if text[at : at + 1] != "[":
            raise self._refusal(f"with what is no array: {_shown(body)}")
        at = _skip(text, at + 1)
        while text[at : at + 1] != "]":
            try:
                item, end = decoder.raw_decode(text, at)
            except ValueError:
                raise self._refusal(f"with what is no JSON: {_shown(body)}") from None
            if not isinstance(item, dict):
                raise self._refusal(f"with an array of something else than objects: {_shown(body)}")
            yield item, text[at:end]
            at = _skip(text, end)
            if text[at : at + 1] == ",":
                at = _skip(text, at + 1)

    def _request(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, str]:
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        connection, is_new = self._connection()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            connection.close()
            if is_new:
                raise
            return self._request(method, path, body)  # the service had closed a connection that was idle
        except BaseException:
            connection.close()
            raise
        self._idle.put(connection)
        shown = _shown(content)
        reason = f"{answer.status} {answer.reason}{f': {shown}' if shown else ''}"
        if answer.status in _BUSY or answer.status >= 500:
            from penstock.sinks.retry import RetryAfter
            from penstock.sinks.webhook import seconds_after

            raise RetryAfter(reason, seconds=seconds_after(answer.getheader("Retry-After")))
        if answer.status in _NOBODY or 300 <= answer.status < 400:
            raise self._refusal(reason)
        return answer.status, content, reason

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        try:
            return self._idle.get_nowait(), False
        except queue.Empty:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            return kind(self._host, self._port, timeout=self._backend.timeout), True

    def _refusal(self, reason: str) -> ConnectorError:
        return ConnectorError(
            f"the service answers {reason}",
            code="LOOKUP_REFUSED",
            where=self._backend.where,
            hint="check the address, the headers and what the service takes",
        )


def _transient(error: Exception) -> str | None:
    from penstock.sinks.retry import RetryAfter

    if not isinstance(error, RetryAfter | OSError | http.client.HTTPException):
        return None
    return str(error) or type(error).__name__


def _plain(value: Any) -> Any:
    """A value that JSON can say."""
    return value if isinstance(value, bool | int | float | str) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _identity(values: Any) -> tuple[str, ...]:
    """A key by its texts: a service may say a number as a text."""
    return tuple(_text(value) for value in values)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _shown(content: bytes) -> str:
    return content[:_SHOWN].decode(errors="replace").strip()
