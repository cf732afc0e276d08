"""Rows of a batch for which a query without memory fails: which they are, and why, as Spark evaluates them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.boot import janino

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

NUMBER, REASON = "penstock_number", "penstock_reason"
_FAILURES = f"{NUMBER} BIGINT, {REASON} STRING"


def leaf(spark: SparkSession, columns: StructType) -> DataFrame:
    """Rows with these columns, over which a query is planned whose failing rows are looked for; it can be run in no other way."""
    from pyspark.sql import DataFrame

    return DataFrame(_java(spark).leaf(spark._jsparkSession, _java_type(spark, columns)), spark)


def obstacle(query: DataFrame) -> str | None:
    """Why the rows for which a query over a leaf fails cannot be told apart, in words; None when they can."""
    text = _java(query.sparkSession).obstacle(query._jdf)
    return None if text is None else str(text)


def numbered(rows: DataFrame) -> DataFrame:
    """Rows of a frame that Spark has persisted, each with a number of its own."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    return rows.withColumn(NUMBER, F.monotonically_increasing_id())


def failing(rows: DataFrame, query: DataFrame) -> DataFrame | None:
    """The numbers and the reasons of the rows for which a query over a leaf of their columns fails; None when it fails for none.

    The rows have their numbers in their last column. A job runs now, in which failing rows are no failing tasks.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    spark = rows.sparkSession
    columns = _java_type(spark, StructType.fromDDL(_FAILURES))  # type: ignore[arg-type]
    failures = _java(spark).failing(spark._jsparkSession, rows._jdf, query._jdf, columns)
    return None if failures is None else DataFrame(failures, spark)


def evaluated(frame: DataFrame) -> DataFrame:
    """The same rows, whose columns are all computed for every row that is read, whatever of them is needed behind it.

    So a row for which a column cannot be computed fails wherever it goes. Spark takes a column with a number of the
    row for one that says something else when it is computed elsewhere: it neither takes a row of such columns apart
    nor lets a filter run before it. The filter behind it wants the row even when nobody else does.
    """
    from pyspark.sql import functions as F

    columns = [f"c{at}" for at in range(len(frame.columns))]
    row = F.struct(*columns, F.monotonically_increasing_id().alias("number")).alias("row")
    return (
        frame.toDF(*columns)
        .select(row)
        .where("row.number >= 0")
        .select(
            *[
                F.col(f"row.{column}").alias(field.name, metadata=field.metadata)
                for column, field in zip(columns, frame.schema.fields, strict=True)
            ]
        )
    )


def _java(spark: SparkSession) -> Any:
    return janino.instance_for_tasks(spark, __package__, "FailingRows")


def _java_type(spark: SparkSession, columns: StructType) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.types.DataType.fromJson(columns.json())
