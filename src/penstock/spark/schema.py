"""The columns of views in Spark's types, and beside those of tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.errors import DataError
from penstock.plan.node import Fields
from penstock.spark.catalyst import bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def spark_kinds(spark: SparkSession, fields: Fields) -> tuple[str, ...]:
    """The types that tables can have of columns; DataError when there is none."""
    for field in fields:
        if "interval" in field.type or field.type in ("void", "variant") or field.type.startswith("time("):
            raise DataError(
                f"column '{field.name}' is {field.type.upper()}, which an Iceberg table cannot have",
                code="SINK_TYPE",
                hint=f"cast it in the view, for example CAST({field.name} AS STRING)",
            )
    return tuple(item.dataType().catalogString() for item in _struct(spark, fields).fields())


def struct_of(spark: SparkSession, fields: Fields) -> StructType:
    """The columns of a view as PySpark has them; texts of a declared length are STRING."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(_struct(spark, fields).json()))


def nullable_ddl(spark: SparkSession, fields: Fields) -> str:
    """The columns in DDL, all of which may be NULL."""
    kinds = spark_kinds(spark, fields)
    return bridge.ddl((field.name, kind, True) for field, kind in zip(fields, kinds, strict=True))


def table_misfits(spark: SparkSession, table: str, fields: Fields) -> list[str]:
    """What does not fit between the columns of a table and those of a view, for people; its rows must fit into the
    table, and nothing else is there."""
    jvm: Any = spark._jvm
    cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast
    existing = {item.name(): item.dataType() for item in spark.table(table)._jdf.schema().fields()}
    wanted = {item.name(): item.dataType() for item in _struct(spark, fields).fields()}
    misfits = [
        f"'{name}' is {existing[name].catalogString()} there and {kind.catalogString()} in the view"
        for name, kind in wanted.items()
        if name in existing and not _fits(cast, kind, existing[name])
    ]
    if set(existing) != set(wanted):
        misfits.append(f"its columns are {', '.join(existing)}, and those of the view {', '.join(wanted)}")
    return misfits


def _fits(cast: Any, kind: Any, into: Any) -> bool:
    same = kind.catalogString() == into.catalogString()
    return same or (into.catalogString() != "string" and bool(cast.canUpCast(kind, into)))


def _struct(spark: SparkSession, fields: Fields) -> Any:
    jvm: Any = spark._jvm
    ddl = bridge.ddl((field.name, field.type, field.nullable) for field in fields)
    declared = jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)
    return jvm.org.apache.spark.sql.catalyst.util.CharVarcharUtils.replaceCharVarcharWithStringInSchema(
        declared
    )
