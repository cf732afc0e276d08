"""SQL over the rows of a change stream: what a query says of the newest row of each key, and which keys are gone from its result.

A filter that a changed row does not pass any more must delete its key downstream; so must a deleted row, of which
often only the key is known. A query that only projects and filters carries the operation along, row by row. Any other
sees the newest row of each key, and every key of the batch that gives no row then is a delete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.data.operation import DELETE, INSERT, OPERATION, UPDATE
from penstock.sinks.column import column, quoted
from penstock.spark.micro_batch import stateless

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def through(rows: DataFrame, query: Callable[[DataFrame], DataFrame], *, keys: Sequence[str]) -> DataFrame:
    """Return the changes that rows with operations make to the result of a query without memory; the keys are columns of both."""
    plain = rows.drop(OPERATION)
    carried = stateless.carried(query(plain), plain, OPERATION)
    return _by_key(rows, query, keys) if carried is None else carried


def keeps_keys(rows: DataFrame, query: Callable[[DataFrame], DataFrame], *, keys: Sequence[str]) -> bool:
    """Whether a query leaves the columns of a key as they are."""
    plain = rows.drop(OPERATION)
    return stateless.passes_columns(query(plain), plain, keys)


def origins(
    rows: DataFrame, query: Callable[[DataFrame], DataFrame]
) -> Mapping[str, frozenset[str] | None] | None:
    """Of a query that only projects and filters: the columns of the rows that each of its columns is made of. None
    for any other query."""
    plain = rows.drop(OPERATION)
    result = query(plain)
    return (
        stateless.origins(result, plain) if stateless.carried(result, plain, OPERATION) is not None else None
    )


def _by_key(rows: DataFrame, query: Callable[[DataFrame], DataFrame], keys: Sequence[str]) -> DataFrame:
    """The newest row of each key through the query, and deletes for keys that give no row then."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    newest = newest_of_each_key(rows, keys)
    operation = column(OPERATION)

    def result(kind: str) -> DataFrame:
        return query(newest.where(operation == kind).drop(OPERATION)).withColumn(OPERATION, F.lit(kind))

    inserted, updated = result(INSERT), result(UPDATE)
    changed = newest.where(operation != INSERT).select(*[column(key) for key in keys])
    same = F.lit(True)
    for key in keys:
        same = same & F.col(f"l.{quoted(key)}").eqNullSafe(F.col(f"r.{quoted(key)}"))
    gone = changed.alias("l").join(updated.alias("r"), same, "left_anti")
    deleted = gone.select(
        *[
            column(field.name) if field.name in keys else F.lit(None).cast(field.dataType).alias(field.name)
            for field in updated.schema.fields[:-1]
        ],
        F.lit(DELETE).alias(OPERATION),
    )
    return inserted.unionAll(updated).unionAll(deleted)


def newest_of_each_key(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of several rows of one key the one that comes last; an insert is an update when the batch has other rows of its key."""
    from pyspark.sql import functions as F

    row, position, several = "penstock_row", "penstock_position", "penstock_several"
    newest = (
        rows.withColumn(position, F.monotonically_increasing_id())
        .groupBy(*[column(key) for key in keys])
        .agg(
            F.max_by(F.struct(*[column(name) for name in rows.columns]), position).alias(row),
            (F.count(F.lit(1)) > 1).alias(several),
        )
    )
    replaces = F.col(several) & (F.col(f"{row}.{quoted(OPERATION)}") == INSERT)
    return newest.select(
        *[F.col(f"{row}.{quoted(name)}").alias(name) for name in rows.columns if name != OPERATION],
        F.when(replaces, UPDATE).otherwise(F.col(f"{row}.{quoted(OPERATION)}")).alias(OPERATION),
    )
