"""Errors on their way from a Spark task to the driver, which else gets their text alone."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, ConnectorError, DataError, InternalError, PenstockError
from penstock.spark.errors.cause import faults

if TYPE_CHECKING:
    from pyspark.sql import Column

_KINDS = {kind.__name__: kind for kind in (ConfigError, ConnectorError, DataError, InternalError)}
_MARK = re.compile(r"<penstock:([A-Za-z0-9+/=\s]+)>")


class TaskError(Exception):
    """What a task raises in the place of an error: its text, with all that the error knows behind it."""

    def __init__(self, error: PenstockError) -> None:
        values = {
            "kind": next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "InternalError"),
            "message": error.message,
            "code": error.code,
            "hint": error.hint,
            "where": error.where,
            "retryable": getattr(error, "retryable", False),
        }
        super().__init__(
            f"{error.message} <penstock:{base64.b64encode(json.dumps(values).encode()).decode()}>"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (Exception, self.args)


def raising(message: Column, *, code: str, where: str, hint: str) -> Column:
    """An expression of Spark that raises a `DataError` for the row for which it is evaluated."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    fields = {"kind": F.lit("DataError"), "message": message, "code": F.lit(code), "where": F.lit(where)}
    fields |= {"hint": F.lit(hint), "retryable": F.lit(False)}
    values = F.to_json(F.struct(*[value.alias(name) for name, value in fields.items()]))
    return F.raise_error(F.concat(message, F.lit(" <penstock:"), F.base64(values.cast("binary")), F.lit(">")))


def carried(error: BaseException) -> PenstockError | None:
    """Return the error that a task has raised as `TaskError`, if an exception that came out of Spark has one.

    >>> print(carried(Exception(str(TaskError(DataError("no such row", hint="look"))))))
    no such row
      hint: look
    """
    match = next((found for fault in faults(error) if (found := _MARK.search(fault.message))), None)
    if match is None:
        return None
    values = json.loads(base64.b64decode(match[1]))
    kind, retryable = _KINDS[values.pop("kind")], values.pop("retryable")
    if kind is ConnectorError:
        return ConnectorError(**values, retryable=retryable)
    return kind(**values)
