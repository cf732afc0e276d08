"""Errors of ours on their way from a Spark task to the driver, which else gets their text alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.errors.cause import faults
from penstock.spark.errors.flow_table import MARK, decoded

if TYPE_CHECKING:
    from pyspark.sql import Column

    from penstock.errors import PenstockError


def raising(message: Column, *, code: str, where: str, hint: str) -> Column:
    """An expression of Spark that raises a `DataError` for the row for which it is evaluated."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    fields = {
        "kind": F.lit("DataError"),
        "message": message,
        "code": F.lit(code),
        "hint": F.lit(hint),
        "where": F.lit(where),
    }
    parts = F.to_json(F.struct(*[value.alias(name) for name, value in fields.items()]))
    return F.raise_error(F.concat(message, F.lit(MARK), parts))


def carried(error: BaseException) -> PenstockError | None:
    """Return the error that a task has raised as `TaskFailed`, if an exception that came out of Spark has one."""
    return next((ours for fault in faults(error) if (ours := decoded(fault.message)) is not None), None)
