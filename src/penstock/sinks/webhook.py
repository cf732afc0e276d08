"""Rows as JSON arrays in HTTP requests: at least once, with a key by which the receiver can tell a request that comes again."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlsplit

from penstock.data.duration import milliseconds
from penstock.errors import ConfigError, ConnectorError
from penstock.sinks.base import Epoch, Guarantee, Sink, Target
from penstock.sinks.column import row_as_json
from penstock.sinks.held_rows import Held
from penstock.sinks.retry import RETRY_FOR, RetryAfter, RetryPolicy, retry

BATCH_ROWS = 1_000
TIMEOUT = "30 seconds"
SHOWN = 200


class WebhookSink(Sink):
    """Posts the rows of each epoch in chunks; the header `Idempotency-Key` has query, epoch and chunk."""

    taken: ClassVar[tuple[str, ...]] = ("url", "headers", "batch_rows", "timeout", "retry_for")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.only_known()
        parts = urlsplit(str(self.required("url")))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"the url of a webhook starts with http:// or https://, got {self.options['url']!r}",
                code="STREAM_OPTION_VALUE",
            )
        headers = self.options.get("headers", {})
        if not isinstance(headers, Mapping):
            raise ConfigError(
                f"headers must be a dictionary, got {type(headers).__name__}",
                code="STREAM_OPTION_VALUE",
                hint='for example .option("headers", {"Authorization": "Bearer ..."})',
            )
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._place = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
        self._headers = {"Content-Type": "application/json", "User-Agent": "penstock", **headers}
        self._batch_rows = self.positive("batch_rows", BATCH_ROWS)
        self._timeout = milliseconds(self.options.get("timeout", TIMEOUT), what="timeout") / 1000
        self._policy = RetryPolicy.of(self.options.get("retry_for", RETRY_FOR))
        self._connection: http.client.HTTPConnection | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.AT_LEAST_ONCE

    def describe(self) -> str:
        return f"webhook {self._place}"

    def open(self, target: Target) -> None:
        self._query, self._status = target.query, target.status

    def write(self, epoch: Epoch) -> int | None:
        rows = 0
        with Held(epoch.frame.select(row_as_json(epoch.frame.columns).alias("row"))) as held:
            for number, chunk in enumerate(self._chunks(held)):
                body = f"[{','.join(chunk)}]".encode()
                key = f"{self._query}-{epoch.number}-{number}"
                retry(
                    partial(self._post, body, key),
                    status=self._status,
                    description=self.describe(),
                    policy=self._policy,
                    transient=self._passing,
                )
                rows += len(chunk)
        return rows

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _chunks(self, held: Held) -> Iterator[list[str]]:
        """Rows in chunks of one size, whatever the partitions: a chunk that comes again has the same number."""
        waiting: list[str] = []
        for batch in held.batches():
            waiting += batch.column(0).to_pylist()
            while len(waiting) >= self._batch_rows:
                yield waiting[: self._batch_rows]
                waiting = waiting[self._batch_rows :]
        if waiting:
            yield waiting

    def _post(self, body: bytes, key: str) -> None:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=self._timeout)
        self._connection.request("POST", self._path, body, {**self._headers, "Idempotency-Key": key})
        answer = self._connection.getresponse()
        content = answer.read()
        if 200 <= answer.status < 300:
            return
        shown = content[:SHOWN].decode(errors="replace").strip()
        told = f"{answer.status} {answer.reason}{f': {shown}' if shown else ''}"
        if answer.status in (408, 425, 429) or answer.status >= 500:
            raise RetryAfter(told, seconds=_seconds(answer.getheader("Retry-After")))
        raise ConnectorError(
            f"the webhook answers {told}",
            code="SINK_REFUSED",
            where=self._place,
            hint="the rows are sent again when the query is started again; those of earlier chunks too",
        )

    def _passing(self, error: Exception) -> str | None:
        if not isinstance(error, RetryAfter | OSError | http.client.HTTPException):
            return None
        self.close()
        return str(error) or type(error).__name__


def _seconds(after: str | None) -> float:
    """How long a header `Retry-After` asks to wait: it has seconds, or a date; what cannot be read asks for nothing.

    >>> _seconds("120"), _seconds("Wed, 21 Oct 2015 07:28:00 GMT"), _seconds("soon"), _seconds(None)
    (120.0, 0.0, 0.0, 0.0)
    """
    if after is None:
        return 0.0
    if after.strip().isdigit():
        return float(after)
    try:
        moment = parsedate_to_datetime(after)
    except ValueError:
        return 0.0
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
