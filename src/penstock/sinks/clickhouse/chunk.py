"""The rows of a large epoch in chunks, inserted by Spark's tasks."""

from __future__ import annotations

import http.client
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.sinks.clickhouse.client import ClickHouseAddress, ClickHouseClient, ClickHouseError, transient
from penstock.sinks.column import column, row_as_json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

CHUNK, CONTENT = "penstock_chunk", "penstock_content"
FAILURE = "chunk INT, transient BOOLEAN, of_rows BOOLEAN, text STRING"


class ChunkFailed(ClickHouseError):
    """A chunk that was not stored."""

    def __init__(self, text: str, *, transient: bool, of_rows: bool) -> None:
        super().__init__(text)
        self.transient, self.of_rows = transient, of_rows


def insert_settings(token: str, chunks: int, chunk: int) -> Mapping[str, str]:
    """Return the settings of one insert: one block, stored before the answer, dropped when it was stored before."""
    return {
        "insert_deduplication_token": f"{token}-{chunks}-{chunk}",
        "insert_deduplicate": "1",
        "async_insert": "0",
        "input_format_null_as_default": "0",
        "min_insert_block_size_rows": str(1 << 40),
        "min_insert_block_size_bytes": "0",
    }


def send_chunks(
    frame: DataFrame,
    address: ClickHouseAddress,
    into: str,
    token: str,
    *,
    chunks: int,
    pending: Collection[int],
    by: Sequence[str] | None,
) -> dict[int, ChunkFailed]:
    """Insert the pending chunks in one Spark job; return the errors of those that are not stored.

    Rows are dealt out by the columns in `by`, which tell them apart; without, by all columns, and the token says what
    is in a chunk.
    """
    from pyspark.sql import functions as F  # as PySpark's users have it

    numbered = frame.withColumn(CHUNK, F.pmod(F.hash(*_content(frame, by)), F.lit(chunks)))
    if len(pending) < chunks:
        numbered = numbered.where(F.col(CHUNK).isin(sorted(pending)))
    content = [] if by is not None or chunks == 1 else [F.xxhash64(*_content(frame, by)).alias(CONTENT)]
    parted = numbered.repartitionById(chunks, F.col(CHUNK)).select(
        *[column(name) for name in frame.columns], *content
    )
    failures = parted.mapInArrow(_Insert(address, into, token, chunks), FAILURE).collect()
    return {
        row.chunk: ChunkFailed(row.text, transient=row.transient, of_rows=row.of_rows) for row in failures
    }


@dataclass(frozen=True, slots=True)
class _Insert:
    """What a task does with its chunk: insert it, and return the failure if there is one."""

    address: ClickHouseAddress
    into: str
    token: str
    chunks: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        chunk = context.partitionId()
        rows = [batch for batch in batches if batch.num_rows]
        if not rows:
            return
        table, token = pa.Table.from_batches(rows), self.token
        if CONTENT in table.column_names:
            token = f"{token}-{_digest(table.column(CONTENT)):016x}"
            table = table.drop_columns([CONTENT])
        settings = insert_settings(token, self.chunks, chunk)
        try:
            with ClickHouseClient(self.address) as client:
                client.insert(self.into, table, settings)
        except (ClickHouseError, OSError, http.client.HTTPException) as error:
            yield _failure(chunk, error)


def _digest(contents: pa.ChunkedArray) -> int:
    """A number for rows in whatever order."""
    return sum(int(part.to_numpy().view("uint64").sum()) for part in contents.chunks) % 2**64


def _failure(chunk: int, error: Exception) -> pa.RecordBatch:
    import pyarrow as pa

    of_rows = isinstance(error, ClickHouseError) and error.of_rows
    values = (chunk, transient(error) is not None, of_rows, str(error) or type(error).__name__)
    kinds = (pa.int32(), pa.bool_(), pa.bool_(), pa.string())
    return pa.RecordBatch.from_arrays(
        [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)],
        names=["chunk", "transient", "of_rows", "text"],
    )


def _content(frame: DataFrame, by: Sequence[str] | None) -> list[Column]:
    """Return a row's key, or else the columns that are the same when Spark computes them again.

    Sums of floating-point numbers may differ in their last digit.
    """
    names = by or [field.name for field in frame.schema if _is_exact(field.dataType)]
    return [column(name) for name in names] or [row_as_json(frame.columns)]


def _is_exact(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, FractionalType, MapType, StructType, VariantType

    if isinstance(kind, FractionalType):
        return kind.simpleString().startswith("decimal")
    return not isinstance(kind, ArrayType | MapType | StructType | VariantType)
