"""Streaming DataFrames: where they come from, and what a builder does with them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.data.schema import to_arrow_schema, to_ddl
from penstock.errors import ConfigError, DataError
from penstock.spark import reader
from penstock.spark.filesystem import Folder
from penstock.spark.micro_batch import tap
from penstock.sql.files import extension

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

STREAM = "stream"
WATERMARK = "spark.watermarkDelayMs"
_naming = threading.Lock()


def of_files(
    spark: SparkSession, form: str, path: str, *, schema: Any, options: Mapping[str, Any]
) -> DataFrame:
    """Files of a folder, a pattern or one file, and those that come later; types are inferred from what is there."""
    location = reader.absolute(path)
    if schema is None:
        schema = _schema_of_files(spark, form, location, options)
    elif not hasattr(schema, "fields"):
        schema = to_ddl(to_arrow_schema(schema))
    defaults = {key: value for key, value in reader.DEFAULTS.get(form, {}).items() if key != "inferSchema"}
    files = spark.readStream.format(form).schema(schema).options(**{**defaults, **options})
    if _is_file(spark, location):
        # Spark watches folders: of this one, only the file.
        folder, only = _alone(location)
        return files.options(**only).load(folder)
    return files.load(location)


def _alone(location: str) -> tuple[str, dict[str, str]]:
    """Return the folder of a file, and the option with which it is the only one there."""
    folder, name = os.path.split(location)
    return folder, {"pathGlobFilter": re.sub(r"([*?\[\]{}\\])", r"\\\1", name)}


def _is_file(spark: SparkSession, location: str) -> bool:
    if not reader.is_uri(location):
        return os.path.isfile(location)
    if not extension(location) or re.search(r"[*?\[{]", location):
        return False  # a folder or a pattern, without asking the store
    return Folder(spark, location).is_file


def columns_of_files(
    spark: SparkSession, form: str, path: str, *, schema: Any, options: Mapping[str, Any]
) -> StructType:
    """Return the columns that the user gave, in any form, or else those of the files that are there."""
    if schema is not None:
        return as_struct(schema)
    inferred = _schema_of_files(spark, form, reader.absolute(path), options)
    # Spark adds a column for what it could not read when it looks at files.
    return without(inferred, [str(spark.conf.get("spark.sql.columnNameOfCorruptRecord"))])


def folders_of_files(
    spark: SparkSession, path: str, wanted: StructType, options: Mapping[str, Any]
) -> StructType:
    """Return the columns that names of folders give (`day=2026-01-01/`), in the types that are wanted."""
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StructType

    location = reader.absolute(path)
    plain = {
        key: value for key, value in options.items() if key.lower() in ("basepath", "recursivefilelookup")
    }
    if not plain and _has_no_folders(location):
        return StructType()  # without Spark, which lists the files
    try:
        partitions = spark.read.format("text").options(**plain).load(location).schema.fields[1:]
    except AnalysisException:
        return StructType()  # nothing is there yet
    types = {field.name: field for field in wanted.fields}
    return StructType([types.get(field.name, field) for field in partitions])


def _has_no_folders(location: str) -> bool:
    """Whether a place is a local file, or a local folder without folders in it."""
    if reader.is_uri(location):
        return False
    try:
        with os.scandir(location) as entries:
            return not any(entry.is_dir() for entry in entries)
    except NotADirectoryError:
        return True
    except OSError:
        return False  # such as a pattern


def text_and(folders: StructType) -> StructType:
    """Return the columns of text files in such folders."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField("value", StringType()), *folders.fields])


def without(schema: StructType, names: Sequence[str]) -> StructType:
    """Return a schema without some of its columns."""
    from pyspark.sql.types import StructType

    return StructType([field for field in schema.fields if field.name not in names])


def as_struct(schema: Any) -> StructType:
    """Return columns that the user gave in any form as Spark's type."""
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return schema
    struct = StructType.fromDDL(to_ddl(to_arrow_schema(schema)))
    assert isinstance(struct, StructType)
    return struct


def before(frame: DataFrame, until: Column, watermark_ms: int) -> DataFrame:
    """Return the rows that a watermark has passed."""
    from pyspark.sql import functions

    return frame.where(until <= functions.timestamp_millis(functions.lit(watermark_ms)))


def _schema_of_files(spark: SparkSession, form: str, path: str, options: Mapping[str, Any]) -> Any:
    plain = {
        key: value
        for key, value in options.items()
        if key.lower() not in ("maxfilespertrigger", "latestfirst")
    }
    if re.search(r"[*?\[{]", path) and _is_file(spark, path):
        path, only = _alone(path)
        plain |= only
    try:
        return reader.read(spark, form, path, **plain).schema
    except Exception as error:
        if "UNABLE_TO_INFER_SCHEMA" in str(error):
            raise DataError(
                f"no {form} file in {path} to learn the columns from",
                code="STREAM_SCHEMA_UNKNOWN",
                hint='give them: schema="id BIGINT, amount DECIMAL(10,2)"',
            ) from None
        raise


def of_table(spark: SparkSession, name: str) -> DataFrame:
    """A table as a stream when it can be one, otherwise as it is now."""
    from pyspark.errors import AnalysisException

    try:
        return spark.readStream.table(name)
    except AnalysisException:
        return spark.table(name)


def of_batch(frame: DataFrame, spool: str) -> DataFrame:
    """The rows of a batch DataFrame, once, as a stream: through files, because Spark streams have offsets."""
    frame.write.mode("overwrite").parquet(spool)
    return frame.sparkSession.readStream.schema(frame.schema).parquet(spool)


def with_timestamp(frame: DataFrame, column: str) -> DataFrame:
    """Give an event time the one type that Spark's watermarks take."""
    from pyspark.sql import functions
    from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

    kind = frame.schema[column].dataType
    if isinstance(kind, TimestampType):
        return frame
    if isinstance(kind, TimestampNTZType | DateType):
        return frame.withColumn(column, functions.col(f"`{column}`").cast("timestamp"))
    raise ConfigError(
        f"the event time '{column}' is {kind.simpleString()}, not a time",
        code="STREAM_EVENT_TIME",
        hint=f'make it one: .with_column("{column}", F.to_timestamp("{column}"))'
        if kind.simpleString() == "string"
        else f'make it one: .with_column("{column}", F.timestamp_millis("{column}"))',
    )


def has_watermark(frame: DataFrame, column: str) -> bool:
    """Whether a time has the watermark of an operator before that keeps state: Spark lets nobody give it another."""
    return WATERMARK in frame.schema[column].metadata and tap.keeps(frame)


def query(frame: DataFrame, sql: str) -> DataFrame:
    """Run a query in which the frame is the table `stream`; a view of that name is back afterwards."""
    spark = frame.sparkSession
    with _naming:
        old = spark.table(STREAM) if spark.catalog.tableExists(STREAM) else None
        frame.createOrReplaceTempView(STREAM)
        try:
            return spark.sql(sql)
        finally:
            spark.catalog.dropTempView(STREAM)
            if old is not None:
                old.createOrReplaceTempView(STREAM)


def interval_join(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str] | Column,
    how: str,
    *,
    times: tuple[str, str],
    within_ms: int,
) -> DataFrame:
    """Join rows whose times are at most `within_ms` apart; columns to join on by name appear once."""
    from pyspark.sql import functions

    span = functions.expr(f"INTERVAL {within_ms} MILLISECONDS")
    near = right[times[1]].between(left[times[0]] - span, left[times[0]] + span)
    if isinstance(on, str | Sequence):
        names = [on] if isinstance(on, str) else list(on)
        equal = reduce(
            lambda condition, equality: condition & equality, (left[name] == right[name] for name in names)
        )
        joined = left.join(right, on=equal & near, how=how)
        if how.lower().replace("_", "") in ("leftsemi", "semi", "leftanti", "anti"):
            return joined
        return _keys_once(joined, left, right, names, how.lower())
    return left.join(right, on=on & near, how=how)


def _keys_once(
    joined: DataFrame, left: DataFrame, right: DataFrame, names: Sequence[str], how: str
) -> DataFrame:
    """Columns to join on appear once, with a value also where only one side has a row, as in a join with USING."""
    from pyspark.sql import functions

    key_side = right if how.startswith("right") else left
    full = how.startswith(("full", "outer"))
    keys = [
        functions.coalesce(left[name], right[name]).alias(name) if full else key_side[name] for name in names
    ]
    rest = [side[name] for side in (left, right) for name in side.columns if name not in names]
    return joined.select(*keys, *rest)


def transform_with_state(
    frame: DataFrame,
    keys: Sequence[str],
    processor: Any,
    output_schema: Any,
    output_mode: str,
    time_mode: str,
    initial_state: Any,
) -> DataFrame:
    """Run a stateful processor per key; the mode of time may be written in words: event_time, processing_time."""
    schema = output_schema if hasattr(output_schema, "fields") else to_ddl(to_arrow_schema(output_schema))
    return frame.groupBy(*keys).transformWithState(
        processor, schema, output_mode, time_mode.replace("_", ""), initial_state
    )
