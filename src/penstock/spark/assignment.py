"""Columns of a query as columns of a source, as Spark's INSERT and UPDATE assign them: numbers fit or are refused,
texts are no dates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import SqlError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class AssignedColumn:
    """A column that is assigned: its name, and its type in Spark."""

    name: str
    kind: str


def assigned(frame: DataFrame, targets: Sequence[AssignedColumn]) -> DataFrame:
    """The columns of a query, by position, with the names and types of their targets; SqlError when a type does not fit."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    jvm: Any = frame.sparkSession._jvm
    cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast
    fields = frame._jdf.schema().fields()
    for field, target in zip(fields, targets, strict=True):
        wanted = jvm.org.apache.spark.sql.types.DataType.fromDDL(target.kind)
        if not cast.canANSIStoreAssign(field.dataType(), wanted):
            kind = field.dataType().catalogString().upper()
            raise SqlError(
                f"column '{target.name}' is {target.kind.upper()}, and the value is {kind}",
                code="SQL_TYPE",
                hint=f"write CAST(... AS {target.kind.upper()})",
            )
    positions = [f"c{index}" for index in range(len(targets))]
    numbered = frame.toDF(*positions)
    columns = [
        F.col(position).cast(target.kind).alias(target.name)
        for position, target in zip(positions, targets, strict=True)
    ]
    return numbered.select(*columns)


def no_rows(frame_of: Any) -> DataFrame:
    """What a statement gives that has nothing to show: a DataFrame without columns."""
    nothing: DataFrame = frame_of.range(0).select()
    return nothing
