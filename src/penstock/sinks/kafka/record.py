"""Rows as records of Kafka: a frame with the columns key, value and headers, as Spark's own writer takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import ConfigError
from penstock.sinks.column import as_json, column, row_as_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

RECORD_COLUMNS = frozenset({"key", "value", "headers"})


def value_format(schema: StructType, option: str | None) -> str:
    """Return the format of values: what the option says; else rows that look like records are sent as they are, all others as JSON."""
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
    frame: DataFrame, form: str, *, keys: tuple[str, ...], headers: Mapping[str, str], avro_schema: str | None
) -> DataFrame:
    """Return a frame of records: one key column is sent as it is, several as JSON."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    ready = form in ("string", "binary")
    columns: list[Column] = []
    key = _key(frame, keys, ready)
    if key is not None:
        columns.append(key.cast("binary").alias("key"))
    columns.append(_value(frame, form, avro_schema).cast("binary").alias("value"))
    if headers:
        pairs = [
            F.struct(F.lit(name).alias("key"), F.lit(value).cast("binary").alias("value"))
            for name, value in headers.items()
        ]
        columns.append(F.array(*pairs).alias("headers"))
    elif ready and "headers" in frame.columns:
        columns.append(F.col("headers"))
    return frame.select(*columns)


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


def _value(frame: DataFrame, form: str, avro_schema: str | None) -> Column:
    from pyspark.sql import functions as F  # as PySpark's users have it

    if form in ("string", "binary"):
        return F.col("value")
    if form == "avro":
        from pyspark.sql.avro.functions import to_avro

        row = F.struct(*[column(name) for name in frame.columns])
        return to_avro(row, avro_schema) if avro_schema else to_avro(row)
    return row_as_json(frame.columns)
