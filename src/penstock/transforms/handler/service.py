"""An HTTP service that handles rows, as Spark tasks ask it: several requests at once, each tried again while the
service is away."""

from __future__ import annotations

import http.client
import queue
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlsplit

from penstock.errors import ConnectorError
from penstock.sinks.base import QueryStatus
from penstock.sinks.retry import RetryAfter, RetryPolicy, retry
from penstock.sinks.webhook import seconds_after

T = TypeVar("T")

SHOWN = 200
BUSY = (408, 425, 429)
ADDRESSED_WRONG = (401, 403, 404, 405, 407)
"""Answers that other rows would get too."""


class RowsRefused(Exception):
    """The service does not take these rows."""


_PLAIN = ("accept", "content-type", "user-agent")
_SHORTEST = 4


@dataclass(frozen=True, slots=True)
class Service:
    """Where rows are posted, and how patiently."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    timeout: float
    retry_for: float

    @property
    def where(self) -> str:
        """The service, without what may be secret in its address."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def hidden(self, text: str) -> str:
        """A text without the values of headers, which a service may repeat: reasons of rows are stored."""
        values = [value for name, value in self.headers.items() if name.lower() not in _PLAIN]
        # Behind a word as `Bearer`, the rest is the secret.
        words = {word for value in values for word in (value, value.rpartition(" ")[2])}
        for word in sorted(words, key=len, reverse=True):
            text = text.replace(word, "***") if len(word) >= _SHORTEST else text
        return text


class ServiceClient:
    """Connections to a service, which threads use by turns."""

    def __init__(self, service: Service) -> None:
        self._service = service
        parts = urlsplit(service.url)
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname or "", parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": "penstock",
            **service.headers,
        }
        self._policy = RetryPolicy(seconds=service.retry_for)
        self._idle: queue.SimpleQueue[http.client.HTTPConnection] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def reach(self) -> None:
        """Connect, and ask nothing; raises ConnectorError."""
        self._retrying(lambda: self._idle.put(self._connected()), self._policy.at_start())

    def post(self, body: bytes) -> bytes:
        """Return the answer to some rows; raises RowsRefused for rows that the service does not take, and ConnectorError."""
        return self._retrying(partial(self._post, body), self._policy)

    def _retrying(self, action: Callable[[], T], policy: RetryPolicy) -> T:
        try:
            return retry(
                action,
                status=QueryStatus(),
                description=self._service.where,
                policy=policy,
                transient=_transient,
            )
        except ConnectorError as error:
            if error.code != "SINK_UNREACHABLE":
                raise
            raise ConnectorError(
                error.message,
                code="HANDLER_UNREACHABLE",
                hint="start the pipeline again when the service answers: it goes on where it was; wait "
                "longer with retry_for: 30 minutes",
                retryable=True,
            ) from error

    def _post(self, body: bytes) -> bytes:
        connection = self._connection()
        try:
            connection.request("POST", self._path, body, self._headers)
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()
            raise
        self._idle.put(connection)
        if 200 <= answer.status < 300:
            return content
        shown = content[:SHOWN].decode(errors="replace").strip()
        status = f"{answer.status} {answer.reason}{f': {shown}' if shown else ''}"
        if answer.status in BUSY or answer.status >= 500:
            raise RetryAfter(status, seconds=seconds_after(answer.getheader("Retry-After")))
        if answer.status < 400 or answer.status in ADDRESSED_WRONG:
            raise ConnectorError(
                f"the handler's service answers {status}",
                code="HANDLER_REFUSED",
                where=self._service.where,
                hint="check the address, the headers and the secret",
            )
        raise RowsRefused(f"the service answers {status}")

    def _connected(self) -> http.client.HTTPConnection:
        connection = self._connection()
        connection.connect()
        return connection

    def _connection(self) -> http.client.HTTPConnection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return self._kind(self._host, self._port, timeout=self._service.timeout)


def _transient(error: Exception) -> str | None:
    if not isinstance(error, RetryAfter | OSError | http.client.HTTPException):
        return None
    return str(error) or type(error).__name__
