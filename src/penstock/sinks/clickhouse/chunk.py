"""The rows of a large epoch in chunks, inserted by Spark's tasks."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.sinks.clickhouse.http import Address, Client, Refusal
from penstock.sinks.column import column, row_as_json

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

CHUNK = "penstock_chunk"
OUTCOME = "chunk INT, passes BOOLEAN, of_rows BOOLEAN, text STRING"


class Failed(Exception):
    """A chunk that was not stored."""

    def __init__(self, text: str, *, passes: bool, of_rows: bool) -> None:
        super().__init__(text)
        self.passes, self.of_rows = passes, of_rows


def settings_of(token: str, chunks: int, chunk: int) -> Mapping[str, str]:
    """The settings of one insert: one block, stored when the answer comes, dropped when it was stored before."""
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
    address: Address,
    into: str,
    token: str,
    *,
    chunks: int,
    waiting: Collection[int],
    by: Sequence[str] | None,
) -> dict[int, Failed]:
    """Insert the chunks that are waiting, in one Spark job; return what happened to those that are not stored."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    numbered = frame.withColumn(CHUNK, F.pmod(_content(frame, by), F.lit(chunks)))
    if len(waiting) < chunks:
        numbered = numbered.where(F.col(CHUNK).isin(sorted(waiting)))
    dealt = numbered.repartitionById(chunks, F.col(CHUNK)).select(*[column(name) for name in frame.columns])
    done = dealt.mapInArrow(_Sender(address, into, token, chunks), OUTCOME).collect()
    return {row.chunk: Failed(row.text, passes=row.passes, of_rows=row.of_rows) for row in done}


@dataclass(frozen=True, slots=True)
class _Sender:
    """What a task does with its chunk: insert it, and tell what came of it."""

    address: Address
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
        settings = settings_of(self.token, self.chunks, chunk)
        try:
            with Client(self.address) as client:
                client.insert(self.into, pa.Table.from_batches(rows), settings)
        except Refusal as error:
            yield _outcome(chunk, passes=error.passes, of_rows=error.of_rows, text=str(error))
        except (OSError, http.client.HTTPException) as error:
            lasting = isinstance(error, ssl.SSLCertVerificationError)
            text = str(error) or type(error).__name__
            yield _outcome(chunk, passes=not lasting, of_rows=False, text=text)


def _outcome(chunk: int, *, passes: bool, of_rows: bool, text: str) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = (pa.int32(), pa.bool_(), pa.bool_(), pa.string())
    values = (chunk, passes, of_rows, text)
    return pa.RecordBatch.from_arrays(
        [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)],
        names=["chunk", "passes", "of_rows", "text"],
    )


def _content(frame: DataFrame, by: Sequence[str] | None) -> Column:
    """A number that follows from a row's values: its key, or all columns that come out the same when they are computed again.

    Sums of floating-point numbers may differ in their last digit.
    """
    from pyspark.sql import functions as F  # as PySpark's users have it

    names = by or [field.name for field in frame.schema if _is_exact(field.dataType)]
    return F.hash(*[column(name) for name in names]) if names else F.hash(row_as_json(frame.columns))


def _is_exact(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, FractionalType, MapType, StructType, VariantType

    if isinstance(kind, FractionalType):
        return kind.simpleString().startswith("decimal")
    return not isinstance(kind, ArrayType | MapType | StructType | VariantType)
