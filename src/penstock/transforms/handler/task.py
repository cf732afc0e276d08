"""What a Spark task does with its rows: they are posted in portions, several at once, and the answers come in the
order of the rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from penstock.data.operation import OPERATION
from penstock.errors import DataError, PenstockError
from penstock.transforms.failed_rows import TaskFailed, beside_failed, failed_rows, shown_row
from penstock.transforms.handler.answer import answered
from penstock.transforms.handler.service import RowsRefused, Service, ServiceClient
from penstock.transforms.input_operation import with_deletes, with_operation
from penstock.transforms.json_columns.decoding import decode_column
from penstock.transforms.json_columns.encoding import EncodingStyle, encode_column
from penstock.transforms.json_columns.fitted import fitted_rows
from penstock.transforms.json_columns.kind import column_kind

_STYLE = EncodingStyle()


@dataclass(frozen=True, slots=True)
class _Handled:
    """What became of one request."""

    rows: pa.RecordBatch
    failed: dict[int, str]


@dataclass(frozen=True, slots=True)
class HandlerTask:
    """A handler in a task."""

    service: Service
    columns: pa.Schema
    """Of the answers."""
    out_schema: pa.Schema
    """The columns that leave the task: those of the answers, and of failed rows when rows may fail."""
    zone: str
    node: str
    batch_size: int
    single: bool
    """Whether a request is one object, and not an array."""
    parallelism: int
    keeps_failed: bool
    keys: tuple[str, ...] = ()
    """The primary key, when answers have it too: rows that get no answer are deleted by it, as far as answers say
    which rows they are of."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            with ServiceClient(self.service) as client, ThreadPoolExecutor(self.parallelism) as pool:
                waiting: deque[tuple[pa.RecordBatch, Future[_Handled]]] = deque()
                try:
                    for request in self._requests(batches):
                        waiting.append((request, pool.submit(self._handle, request, client)))
                        if len(waiting) > self.parallelism:
                            yield from self._rows(*waiting.popleft())
                    while waiting:
                        yield from self._rows(*waiting.popleft())
                finally:
                    for _, future in waiting:
                        future.cancel()
        except PenstockError as error:
            raise TaskFailed(error) from None

    def _requests(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        size = 1 if self.single else self.batch_size
        for batch in batches:
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)

    def _handle(self, batch: pa.RecordBatch, client: ServiceClient) -> _Handled:
        try:
            return self._answer(batch, client.post(self._body(batch)))
        except RowsRefused as refused:
            failed = dict.fromkeys(range(batch.num_rows), self.service.hidden(str(refused)))
            nothing = pa.RecordBatch.from_pylist([], schema=self.columns)
            return _Handled(with_deletes(nothing, batch, pa.array([], pa.int64()), keys=self.keys), failed)

    def _body(self, batch: pa.RecordBatch) -> bytes:
        columns = [encode_column(column, _STYLE).values for column in batch.columns]
        names = batch.schema.names
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return orjson.dumps(rows[0] if self.single else rows)

    def _answer(self, batch: pa.RecordBatch, content: bytes) -> _Handled:
        """The rows of an answer; a row of which one is bad fails, and all of the request where that row is not known."""
        answer = answered(content, batch.num_rows)
        values, bad = fitted_rows(answer.rows, [(field.name, column_kind(field)) for field in self.columns])
        columns = []
        for column, field in zip(values, self.columns, strict=True):
            decoded = decode_column(column, field.type, zone=self.zone)
            columns.append(decoded.values)
            for row, text in decoded.bad.items():
                bad.setdefault(row, f"column '{field.name}' {text}")
        if bad and answer.origins is None:
            raise RowsRefused(f"one of the rows that the service answers: {bad[min(bad)]}")
        rows = pa.RecordBatch.from_arrays(columns, schema=self.columns)
        origins = self._origins(batch, rows, answer.origins)
        failed: dict[int, str] = {}
        for row, text in bad.items():
            failed.setdefault(origins[row].as_py(), text)
        rows = with_operation(rows, batch, origins)
        if failed:
            good = pc.invert(pc.is_in(origins, value_set=pa.array(list(failed), pa.int64())))
            rows, origins = rows.filter(good), origins.filter(good)
        if answer.origins is not None:
            rows = with_deletes(rows, batch, origins, keys=self.keys)
        return _Handled(rows, failed)

    def _origins(self, batch: pa.RecordBatch, rows: pa.RecordBatch, origins: list[int] | None) -> pa.Array:
        """The row of the request that each row belongs to; where that is not known, any that has the same operation
        as all others."""
        if origins is not None:
            return pa.array(origins, pa.int64())
        if OPERATION in batch.schema.names and OPERATION in rows.schema.names:
            operations = batch.column(batch.schema.get_field_index(OPERATION))
            own = rows.column(rows.schema.get_field_index(OPERATION))
            if own.null_count and len(pc.unique(operations)) > 1:
                raise RowsRefused(
                    f"the service answers {rows.num_rows} rows for {batch.num_rows}, and not all say their `_op`"
                )
        return pa.array([0] * rows.num_rows, pa.int64())

    def _rows(self, batch: pa.RecordBatch, future: Future[_Handled]) -> Iterator[pa.RecordBatch]:
        handled = future.result()
        if handled.failed and not self.keeps_failed:
            row = min(handled.failed)
            many = f" and {len(handled.failed) - 1} more" if len(handled.failed) > 1 else ""
            raise DataError(
                f"the handler {self.node} failed for a row{many}: {handled.failed[row]}; the row is {shown_row(batch, row)}",
                code="HANDLER_ROW",
                where=self.service.where,
                hint="mend the service, or let such rows go with on_error: drop or on_error: dead_letter",
            )
        if handled.rows.num_rows:
            yield beside_failed(handled.rows, self.out_schema) if self.keeps_failed else handled.rows
        if handled.failed:
            yield failed_rows(batch, handled.failed, self.out_schema)


def kinds(columns: pa.Schema) -> list[dict[str, Any]]:
    """Return the types of columns; raises ConfigError for one that JSON cannot say."""
    return [column_kind(field) for field in columns]
