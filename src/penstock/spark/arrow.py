"""Rows between Spark and Arrow, also those that PySpark fails to convert: with intervals of months, and with VARIANTs
and structs that are NULL while their parts may not be.

A batch of rows travels without its schema, and Spark writes an interval of years and months as a number of 32 bits:
so it is read and written as one, here and in the kernel, and users get Arrow's intervals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.data.schema import declared_type, to_arrow_field, to_arrow_schema
from penstock.spark import arrow_stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"
_SPECIAL = re.compile(r"\binterval(?! (?:day|hour|minute|second))|\bvariant\b")
_VOID = re.compile(r"\bvoid\b")
_MOST_ROWS = 10_000  # of one batch
_MOST_JOBS = 4  # side by side


def to_arrow(frame: DataFrame) -> pa.Table:
    """Return all rows of a DataFrame, as `DataFrame.toArrow` does."""
    import pyarrow as pa

    if not is_beyond_pyspark(frame.schema):
        return frame.toArrow()
    frame = readable(frame)
    wire, shown = wire_schema(frame), user_schema(frame.schema)
    _, batches = arrow_stream.collect_messages(frame)
    return pa.Table.from_batches(
        (as_shown(pa.ipc.read_record_batch(batch, wire), shown) for batch in batches), shown
    )


def to_arrow_all(frames: Sequence[DataFrame]) -> list[pa.Table]:
    """Return all rows of each of several DataFrames, by jobs that run side by side and end with the caller's."""
    from pyspark.util import inheritable_thread_target

    if len(frames) < 2:
        return [to_arrow(frame) for frame in frames]
    # The threads have the properties of this one, by which Spark knows what to cancel.
    as_this: Any = inheritable_thread_target(frames[0].sparkSession)
    with ThreadPoolExecutor(min(len(frames), _MOST_JOBS), "penstock-rows") as pool:
        return [task.result() for task in [pool.submit(as_this(to_arrow), frame) for frame in frames]]


def stream(frame: DataFrame) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Run a query and return its columns and its rows in their order, while they arrive; the whole is never in memory."""
    import pyarrow as pa

    if not is_beyond_pyspark(frame.schema):
        return arrow_stream.stream(frame)
    frame = readable(frame)
    wire, shown = wire_schema(frame), user_schema(frame.schema)
    _, batches = arrow_stream.stream_messages(frame)
    return shown, (as_shown(pa.ipc.read_record_batch(batch, wire), shown) for batch in batches)


def readable(frame: DataFrame) -> DataFrame:
    """The same rows in types that Arrow has: keys of VOID, which only empty maps have, become BOOLEAN."""
    from pyspark.sql import functions as F

    kinds = [_keyed(field.dataType) for field in frame.schema.fields]
    if all(kind == field.dataType for kind, field in zip(kinds, frame.schema.fields, strict=True)):
        return frame
    names = [f"_{at}" for at in range(len(kinds))]
    columns = (
        F.col(name).cast(kind).alias(field.name)
        for name, kind, field in zip(names, kinds, frame.schema.fields, strict=True)
    )
    return frame.toDF(*names).select(*columns)


def _keyed(kind: Any) -> Any:
    """A type of Spark whose maps have keys that Arrow has."""
    from pyspark.sql import types as t

    match kind:
        case t.ArrayType():
            return t.ArrayType(_keyed(kind.elementType), kind.containsNull)
        case t.MapType():
            key = t.BooleanType() if isinstance(kind.keyType, t.NullType) else _keyed(kind.keyType)
            return t.MapType(key, _keyed(kind.valueType), kind.valueContainsNull)
        case t.StructType():
            return t.StructType(
                [
                    t.StructField(field.name, _keyed(field.dataType), field.nullable, field.metadata)
                    for field in kind.fields
                ]
            )
    return kind


def is_beyond_pyspark(schema: StructType) -> bool:
    """Whether PySpark may fail to convert rows of a schema to Arrow."""
    return any(
        is_special(kind := field.dataType.simpleString())
        or _is_strict(field.dataType)
        or (_VOID.search(kind) is not None and ("<" in kind or not field.nullable))
        for field in schema.fields
    )


def is_special(kind: str) -> bool:
    """Whether the name of a type has an interval of months or a VARIANT in it."""
    return _SPECIAL.search(kind) is not None


def _is_strict(kind: Any) -> bool:
    """Whether a struct of a type has a field that is NOT NULL, and cannot be if the struct itself is NULL."""
    fields = getattr(kind, "fields", ())
    inner = [getattr(kind, name) for name in ("elementType", "keyType", "valueType") if hasattr(kind, name)]
    return any(not field.nullable or _is_strict(field.dataType) for field in fields) or any(
        map(_is_strict, inner)
    )


def user_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which users get rows."""
    import pyarrow as pa
    from pyspark.sql.pandas import types

    if not is_beyond_pyspark(schema):
        return types.to_arrow_schema(schema)
    fields = to_arrow_schema(schema)
    return pa.schema([to_arrow_field(field.name, declared_type(field), field.nullable) for field in fields])


def wire_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow schema in which Spark hands out batches of a DataFrame."""
    import pyarrow as pa
    from pyspark.sql.pandas import types

    from penstock.data.types import kernel_type

    large = frame.sparkSession.conf.get(_LARGE, "false") == "true"
    if not is_beyond_pyspark(frame.schema):
        return types.to_arrow_schema(frame.schema, prefers_large_types=large)
    shown = user_schema(frame.schema)
    return pa.schema(
        [(field.name, spark_type(kernel_type(declared_type(field)), large=large)) for field in shown]
    )


def as_shown(batch: pa.RecordBatch, shown: pa.Schema) -> pa.RecordBatch:
    """A batch as Spark handed it out, in the schema in which users get it."""
    import pyarrow as pa

    from penstock.data.types import kernel_type
    from penstock.data.user_types import to_user

    if batch.schema.equals(shown):
        return batch
    columns = [
        to_user(column.cast(kernel_type(declared_type(field))), declared_type(field))
        for column, field in zip(batch.columns, shown, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=shown)


def spark_type(kind: pa.DataType, *, large: bool = True) -> pa.DataType:
    """The Arrow type in which Spark takes and gives the values of a kernel column: lists are never large, texts only
    with `large`."""
    import pyarrow as pa

    t = pa.types
    if t.is_large_list(kind) or t.is_list(kind):
        return pa.list_(spark_type(kind.value_type, large=large))
    if t.is_struct(kind):
        return pa.struct([(item.name, spark_type(item.type, large=large)) for item in kind])
    if t.is_map(kind):
        return pa.map_(spark_type(kind.key_type, large=large), spark_type(kind.item_type, large=large))
    if large:
        return kind
    return pa.string() if t.is_large_string(kind) else pa.binary() if t.is_large_binary(kind) else kind


def to_frame(
    spark: SparkSession,
    columns: Sequence[pa.Array],
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    schema: StructType | None = None,
) -> DataFrame:
    """Return columns of the kernel as a DataFrame of exactly these types of Spark; `schema` says the same, when it is known."""
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    from penstock.spark.catalyst import bridge

    jvm: Any = spark._jvm
    large = bool(spark._jconf.arrowUseLargeVarTypes())
    if schema is None:
        ddl = bridge.ddl((name, kind, True) for name, kind in zip(names, kinds, strict=True))
        described = jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl).json()
    else:
        described = schema.json()
    wire = pa.schema(
        [(name, spark_type(column.type, large=large)) for name, column in zip(names, columns, strict=True)]
    )
    batches = []
    for start in range(0, max(1, len(columns[0])), _MOST_ROWS):
        parts = [
            column.slice(start, _MOST_ROWS).cast(field.type)
            for column, field in zip(columns, wire, strict=True)
        ]
        batches.append(pa.RecordBatch.from_arrays(parts, schema=wire))
    rows = spark._sc._serialize_to_jvm(
        batches,
        ArrowStreamSerializer(),
        lambda path: jvm.PythonSQLUtils.readArrowStreamFromFile(path),
        lambda: jvm.ArrowIteratorServer(),
    )
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(rows, described, spark._jsparkSession), spark)
