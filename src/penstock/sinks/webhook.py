"""Rows as JSON in HTTP requests: at least once, with a key by which the receiver can tell a repeated request."""

from __future__ import annotations

import http.client
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlsplit

from pydantic import AliasChoices, Field, field_validator

from penstock.errors import ConnectorError, DataError
from penstock.options import Count, Duration, Texts, mistake
from penstock.sinks.base import Epoch, Guarantee
from penstock.sinks.column import row_as_json
from penstock.sinks.epoch_rows import EpochRows
from penstock.sinks.errors import ROW_REFUSED, row_refused
from penstock.sinks.failed_row import INPUT, input_of
from penstock.sinks.retry import RetryAfter
from penstock.sinks.server import ServerOptions, ServerSink

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sinks.refused import RefusedRows

SHOWN = 200
NOT_OF_ROWS = frozenset({401, 403, 404, 405, 407})
"""Answers that every row would get; all others from 400 on that are not tried again are about the rows of the request."""


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
        count, names, refused = 0, epoch.frame.columns, self.target.refused
        columns = [row_as_json(names).alias("row")]
        # What was refused when the epoch came before is not asked for again.
        left_out = Counter[str]() if refused is None else refused.inputs()
        if refused is not None:
            columns.append(input_of(names).alias(INPUT))
        with EpochRows(epoch.frame.select(*columns)) as rows:
            for number, chunk in enumerate(self._chunks(rows)):
                key = f"{quote(self.target.query)}-{epoch.number}-{number}"
                if refused is None:
                    self._send([row for (row,) in chunk], key)
                    count += len(chunk)
                else:
                    count += self._send_parts(chunk, key, refused, left_out)
        if refused is not None:
            refused.keep()
        return count

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def transient(self, error: Exception) -> str | None:
        if not isinstance(error, RetryAfter | OSError | http.client.HTTPException):
            return None
        return str(error) or type(error).__name__

    def _send(self, rows: Sequence[str], key: str) -> None:
        body = rows[0] if self.options.one_row_per_request else f"[{','.join(rows)}]"
        self.retry(partial(self._post, body.encode(), key))

    def _send_parts(
        self,
        chunk: Sequence[tuple[str, ...]],
        key: str,
        refused: RefusedRows,
        left_out: Counter[str],
    ) -> int:
        """Send a chunk of rows, each with what a dead letter has of it: in ever smaller parts where one is refused.
        Return how many were sent."""
        count, parts = 0, [(0, len(chunk))]
        while parts:
            begin, end = parts.pop()
            rows = chunk[begin:end]
            left_rows = [row for _, row in rows if left_out[row]]
            if left_rows and len(rows) == 1:
                left_out.subtract(left_rows)
                continue
            if not left_rows:
                # The key of a part says where in the chunk it is: the same part has the same key when the epoch comes again.
                own = key if len(rows) == len(chunk) else f"{key}-{begin}-{end}"
                try:
                    self._send([row for row, _ in rows], own)
                except DataError as error:
                    if error.code != ROW_REFUSED:
                        raise
                    if len(rows) == 1:
                        refused.add(error.message, rows[0][1])
                        continue
                else:
                    count += len(rows)
                    continue
            middle = begin + len(rows) // 2
            parts += [(middle, end), (begin, middle)]
        return count

    def _chunks(self, rows: EpochRows) -> Iterator[list[tuple[str, ...]]]:
        """Rows in chunks of one size, whatever the partitions, so that a repeated chunk has the same number."""
        size = 1 if self.options.one_row_per_request else self.options.batch_rows
        pending = list[tuple[str, ...]]()
        for batch in rows.batches():
            pending += zip(*(column.to_pylist() for column in batch.columns), strict=True)
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
        if 400 <= answer.status < 500 and answer.status not in NOT_OF_ROWS:
            raise row_refused(
                "the webhook",
                status,
                where=self._location,
                hint="rows of earlier requests are sent again when the query is started again; on_error of "
                "the node in a pipeline leaves such a row out",
            )
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
