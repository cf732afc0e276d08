"""Rows of a change stream in a sink: the operation of each row, for tables that know what it means and for those that
only grow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.data.operation import INSERT, WEIGHT
from penstock.errors import ConfigError, DataError
from penstock.sinks.base import Target, require_key
from penstock.sinks.column import column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

REFUSED = "penstock takes inserts alone here, and a row has the operation <"
END = ">"


def require_rows_by_key(target: Target) -> None:
    """Refuse update mode without a key, and rows that have no key but a weight."""
    require_key(target)
    if target.mode == "update" and WEIGHT in target.schema.names:
        raise ConfigError(
            f"the rows are changes of a view without a key: they have the column '{WEIGHT}', and none of them replaces another",
            code="STREAM_KEY",
            hint="give the view a primary_key, or send its changes to print, file, memory, kafka or webhook",
        )


def stored_schema(target: Target) -> StructType:
    """The columns of a table: those of the rows without the operation."""
    from pyspark.sql.types import StructType

    return StructType([field for field in target.schema if field.name != target.operation])


def inserts_of(frame: DataFrame, operation: str | None) -> DataFrame:
    """The rows without their operation; one that is no insert fails the job, which `inserts_alone` puts into words."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    if operation is None:
        return frame
    value = column(operation)
    refusal = F.raise_error(F.concat(F.lit(REFUSED), value, F.lit(END))).cast("boolean")
    is_insert = F.when(value.isNull() | (value == INSERT), F.lit(True)).otherwise(refusal)
    return frame.where(is_insert).drop(column(operation))


@contextlib.contextmanager
def inserts_alone(where: str) -> Iterator[None]:
    """Raise a DataError where a row of `inserts_of` is refused."""
    try:
        yield
    except Exception as error:
        text = str(error)
        at = text.find(REFUSED)
        if at < 0:
            raise
        operation = text[at + len(REFUSED) :].partition(END)[0]
        raise DataError(
            f"a row has the operation '{operation}', and rows are only added here",
            code="SINK_OPERATION",
            where=where,
            hint="give the sink a primary_key and let it update, or filter the rows; nothing of the batch was stored",
        ) from error
