"""Rows that people write, as in the tests of a pipeline, in the exact types of columns; and rows as JSON, to be compared."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import DataError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_TEXT, _ROW = "penstock_text", "penstock_row"


def frame_of(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: StructType) -> DataFrame:
    """Return rows with these columns; what a row does not say is NULL. DataError for a value that does not fit its column."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    kinds = {field.name: field.dataType for field in schema.fields}
    texts = [
        (json.dumps({name: _exact(value, kinds.get(name)) for name, value in row.items()}, default=_as_text),)
        for row in rows
    ]
    frame = spark.createDataFrame(texts, f"{_TEXT} string")
    if not rows:
        return spark.createDataFrame([], schema)
    parsed = frame.select(F.from_json(_TEXT, schema, {"mode": "FAILFAST"}).alias(_ROW)).select(f"{_ROW}.*")
    try:
        table = parsed.toArrow()
    except PySparkException:
        raise DataError(_misfit(frame, rows, schema), code="DATA_ROW") from None
    return spark.createDataFrame(table, schema) if table.num_rows else parsed


def texts_of(frame: DataFrame, columns: Sequence[str]) -> list[str]:
    """Return the rows as JSON texts of some columns, NULL written out, so that equal rows are equal texts."""
    from pyspark.sql import functions as F

    quoted = [F.col(f"`{name.replace('`', '``')}`") for name in columns]
    row = F.to_json(F.struct(*quoted), {"ignoreNullFields": "false"})
    return [text for (text,) in frame.select(row.alias(_TEXT)).collect()]


def _misfit(frame: DataFrame, rows: Sequence[Mapping[str, Any]], schema: StructType) -> str:
    """Say which value of which row does not fit its column."""
    from pyspark.sql import functions as F

    for number, (text, row) in enumerate(zip(frame.collect(), rows, strict=True), start=1):
        for field in schema.fields:
            if row.get(field.name) is None:
                continue
            row_frame = frame.sparkSession.createDataFrame([text], f"{_TEXT} string")
            kind = type(schema)([field])
            value = row_frame.select(F.from_json(_TEXT, kind).alias(_ROW)).select(f"{_ROW}.*").first()
            if value is None or value[0] is None:
                return f"row {number}: {row[field.name]!r} is no {field.dataType.simpleString().upper()} for column '{field.name}'"
    return "a row does not fit the columns"


def _exact(value: Any, kind: DataType | None) -> Any:
    """A value as JSON says it best: a number as it is written where the column is a text, or has more digits than a float."""
    from pyspark.sql.types import DecimalType, StringType

    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    is_text = isinstance(kind, StringType) or (isinstance(kind, DecimalType) and isinstance(value, float))
    return str(value) if is_text else value


def _as_text(value: Any) -> str:
    """Dates and times of YAML as Spark reads them."""
    if isinstance(value, dt.date | dt.datetime | dt.time):
        return value.isoformat()
    return str(value)
