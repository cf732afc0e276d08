"""Rows as JSON in HTTP requests: at least once, with a key by which the receiver can tell a repeated request."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlsplit

from pydantic import AliasChoices, Field, field_validator

from penstock.errors import ConnectorError
from penstock.options import Count, Duration, Texts, mistake
from penstock.sinks.base import Epoch, Guarantee
from penstock.sinks.column import row_as_json
from penstock.sinks.epoch_rows import EpochRows
from penstock.sinks.retry import RetryAfter
from penstock.sinks.server import ServerOptions, ServerSink

if TYPE_CHECKING:
    from penstock.config import Settings

SHOWN = 200


class WebhookOptions(ServerOptions):
    """Where rows are posted, and in what portions."""

    url: str = Field(repr=False, description="where rows are posted, as JSON")
    headers: Texts = Field(
        {},
        repr=False,
        description='more headers of each request, for example `{"Authorization": "Bearer ..."}`',
    )
    batch_rows: Count = Field(
        1_000,
        validation_alias=AliasChoices("batch_rows", "batch_size"),
        description="rows per request",
    )
    one_row_per_request: bool = Field(
        False, description="one JSON object per request, and not an array of objects"
    )
    timeout: Duration = Field(
        "30 seconds", validate_default=True, description="how long one request may take"
    )

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise mistake(
                "of a webhook starts with http:// or https://", hint="for example https://host/path"
            )
        return url


class WebhookSink(ServerSink):
    """Posts the rows of each epoch in chunks; the header `Idempotency-Key` has query, epoch and chunk."""

    Options = WebhookOptions
    takes_operations: ClassVar[bool] = True

    options: WebhookOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        parts = urlsplit(self.options.url)
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._location = (
            f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
        )
        self._headers = {
            "Content-Type": "application/json",
            "User-Agent": "penstock",
            **self.options.headers,
        }
        self._connection: http.client.HTTPConnection | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.AT_LEAST_ONCE

    def describe(self) -> str:
        return f"webhook {self._location}"

    def write(self, epoch: Epoch) -> int | None:
        count, single = 0, self.options.one_row_per_request
        with EpochRows(epoch.frame.select(row_as_json(epoch.frame.columns).alias("row"))) as rows:
            for number, chunk in enumerate(self._chunks(rows)):
                body = (chunk[0] if single else f"[{','.join(chunk)}]").encode()
                key = f"{quote(self.target.query)}-{epoch.number}-{number}"
                self.retry(partial(self._post, body, key))
                count += len(chunk)
        return count

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def transient(self, error: Exception) -> str | None:
        if not isinstance(error, RetryAfter | OSError | http.client.HTTPException):
            return None
        return str(error) or type(error).__name__

    def _chunks(self, rows: EpochRows) -> Iterator[list[str]]:
        """Rows in chunks of one size, whatever the partitions, so that a repeated chunk has the same number."""
        size = 1 if self.options.one_row_per_request else self.options.batch_rows
        pending = list[str]()
        for batch in rows.batches():
            pending += batch.column(0).to_pylist()
            full_rows = len(pending) // size * size
            for start in range(0, full_rows, size):
                yield pending[start : start + size]
            del pending[:full_rows]
        if pending:
            yield pending

    def _post(self, body: bytes, key: str) -> None:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=self.options.timeout / 1000)
        self._connection.request("POST", self._path, body, {**self._headers, "Idempotency-Key": key})
        answer = self._connection.getresponse()
        content = answer.read()
        if 200 <= answer.status < 300:
            return
        shown = content[:SHOWN].decode(errors="replace").strip()
        status = f"{answer.status} {answer.reason}{f': {shown}' if shown else ''}"
        if answer.status in (408, 425, 429) or answer.status >= 500:
            raise RetryAfter(status, seconds=seconds_after(answer.getheader("Retry-After")))
        raise ConnectorError(
            f"the webhook answers {status}",
            code="SINK_REFUSED",
            where=self._location,
            hint="the rows are sent again when the query is started again; those of earlier chunks too",
        )


def seconds_after(after: str | None) -> float:
    """How long a header `Retry-After` asks to wait, in seconds or until a date; 0 when it cannot be read.

    >>> seconds_after("120"), seconds_after("Wed, 21 Oct 2015 07:28:00 GMT"), seconds_after("soon"), seconds_after(None)
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
