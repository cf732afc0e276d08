"""Rows as records of Kafka: a frame with the columns key, value and headers, as Spark's own writer takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.data.operation import DELETE, INSERT
from penstock.errors import ConfigError
from penstock.sinks.column import as_json, column, row_as_json
from penstock.sinks.kafka.avro_value import AvroValue

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

RECORD_COLUMNS = frozenset({"key", "value", "headers"})
OPERATION_HEADER = "dbz.op"
CREATE = "c"
"""What the header says of an insert; updates and deletes are `u` and `d`, as in the column."""


def value_format(schema: StructType, option: str | None) -> str:
    """Return the format of values: what the option says; else rows that look like records are sent as they are, all
    others as JSON."""
    if option is None:
        ready = "value" in schema.names and set(schema.names) <= RECORD_COLUMNS
        kind = schema["value"].dataType.simpleString() if ready else ""
        return kind if kind in ("string", "binary") else "json"
    if option in ("string", "binary") and "value" not in schema.names:
        raise ConfigError(
            f"value_format {option} sends the column 'value', which the query does not have",
            code="STREAM_OPTION_VALUE",
            hint=f'name it, as in .select(F.col("...").alias("value")), or use json (columns: {", ".join(schema.names)})',
        )
    return option


def records(
    frame: DataFrame,
    form: str,
    *,
    keys: tuple[str, ...],
    headers: Mapping[str, str],
    avro: AvroValue,
    operation: str | None = None,
    tombstones: bool = False,
    beside: Sequence[Column] = (),
) -> DataFrame:
    """Return a frame of records: one key column is sent as it is, several as JSON; the operation of a row is a header.

    `beside` are columns that are not sent.
    """
    from pyspark.sql import functions as F  # as PySpark's users have it

    ready = form in ("string", "binary")
    columns: list[Column] = []
    key = _key(frame, keys, ready)
    if key is not None:
        columns.append(key.cast("binary").alias("key"))
    value = _value(frame, [name for name in frame.columns if name != operation], form, avro).cast("binary")
    if operation is not None and tombstones:
        value = F.when(~column(operation).eqNullSafe(DELETE), value)
    columns.append(value.alias("value"))
    pairs = [_header(name, F.lit(text)) for name, text in headers.items()]
    if operation is not None:
        kind = column(operation)
        word = F.when(kind.isNull() | (kind == INSERT), F.lit(CREATE)).otherwise(kind)
        pairs.append(_header(OPERATION_HEADER, word))
    own = ready and "headers" in frame.columns and not headers
    if own and pairs:
        columns.append(F.concat(F.coalesce(column("headers"), F.array()), F.array(*pairs)).alias("headers"))
    elif own:
        columns.append(F.col("headers"))
    elif pairs:
        columns.append(F.array(*pairs).alias("headers"))
    return frame.select(*columns, *beside)


def _header(name: str, value: Column) -> Column:
    from pyspark.sql import functions as F  # as PySpark's users have it

    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _key(frame: DataFrame, keys: tuple[str, ...], ready: bool) -> Column | None:
    if len(keys) > 1:
        return row_as_json(keys)
    name = keys[0] if keys else "key" if ready and "key" in frame.columns else None
    if name is None:
        return None
    kind = frame.schema[name].dataType.simpleString()
    if kind.startswith(("struct<", "array<", "map<")):
        return as_json(column(name))
    return column(name) if kind == "binary" else column(name).cast("string")


def _value(frame: DataFrame, names: list[str], form: str, avro: AvroValue) -> Column:
    from pyspark.sql import functions as F  # as PySpark's users have it

    if form in ("string", "binary"):
        return F.col("value")
    if form == "avro":
        return avro.encode(F.struct(*[column(name) for name in names]))
    return row_as_json(names)
