"""Files and tables as PySpark DataFrames, with the defaults that people expect."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.data.rows import to_arrow
from penstock.data.schema import declared_type, to_arrow_schema, to_ddl
from penstock.spark.arrow import is_special, to_frame
from penstock.sql.files import extension

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# What Spark leaves off and people expect; an option of the caller's wins.
DEFAULTS: dict[str, dict[str, Any]] = {"csv": {"header": True, "inferSchema": True}}


def read(spark: SparkSession, form: str, path: Paths, *, schema: Any = None, **options: Any) -> DataFrame:
    """Read files of one format; `options` are Spark's own."""
    names = {key.lower() for key in options}
    chosen = {key: value for key, value in DEFAULTS.get(form, {}).items() if key.lower() not in names}
    if schema is not None:
        chosen.pop("inferSchema", None)
    many = [path] if isinstance(path, str | os.PathLike) else list(path)
    paths = [absolute(part) for part in many]
    if (
        form == "csv"
        and not names & {"sep", "delimiter"}
        and all(extension(path) == ".tsv" for path in paths)
    ):
        chosen["sep"] = "\t"
    reader = spark.read.format(form).options(**chosen, **options)
    if schema is not None:
        # A StructType is Spark's own; text may use Arrow's names.
        reader = reader.schema(schema if hasattr(schema, "fields") else to_ddl(to_arrow_schema(schema)))
    return reader.load(paths if len(paths) > 1 else paths[0])


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path as Spark needs it: URIs as they are, local ones absolute and with `~` expanded.

    The JVM keeps the working directory that it was started in, so a relative path must not reach it.
    """
    text = os.fspath(path)
    return text if is_uri(text) else os.path.abspath(os.path.expanduser(text))


def is_uri(path: str) -> bool:
    """Say whether a path names its file system, as in s3://bucket/key."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) is not None


def frame_of_rows(spark: SparkSession, rows: Any, schema: Any = None) -> DataFrame:
    """Return rows of any kind as a DataFrame of this session."""
    if schema is None and hasattr(rows, "createOrReplaceTempView") and rows.sparkSession is spark:
        return rows  # type: ignore[no-any-return]  # a PySpark DataFrame, recognised by its methods
    return frame_of_arrow(spark, to_arrow(rows, schema))


def frame_of_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return an Arrow table as a DataFrame, with zoned and naive times kept apart."""
    kinds = [declared_type(field) for field in table.schema]
    if any(map(is_special, kinds)):
        from penstock.data.conform import conform_to

        fields = [(field.name, kind, True) for field, kind in zip(table.schema, kinds, strict=True)]
        return to_frame(spark, conform_to(table, fields, where="rows"), table.schema.names, kinds)
    ddl = to_ddl(table.schema)
    # Unsigned, nanosecond and fixed-size columns become what Spark has; a time's nanoseconds are cut off, as Spark does.
    return spark.createDataFrame(table.cast(to_arrow_schema(ddl), safe=False), schema=ddl)
