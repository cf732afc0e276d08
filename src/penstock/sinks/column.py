"""Columns by their names, whatever characters these have, and rows as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from penstock.plan.node import Field


def fields_of(schema: StructType) -> tuple[Field, ...]:
    """The columns of a query with the names of their types, as views have them."""
    from penstock.plan.node import (
        Field,
    )  # plans take long to load, and options of sinks are read without them

    return tuple(Field(field.name, field.dataType.simpleString(), field.nullable) for field in schema)


def quoted(name: str) -> str:
    """A name for SQL; a dot in it is part of the name.

    >>> quoted("a.b")
    '`a.b`'
    """
    return f"`{name.replace('`', '``')}`"


def column(name: str) -> Column:
    """The column of that name."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    return F.col(quoted(name))


def as_json(value: Column) -> Column:
    """A nested value as JSON text in which NULL is written out."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    return F.to_json(value, {"ignoreNullFields": "false"})


def row_as_json(names: Iterable[str]) -> Column:
    """Some columns as one JSON object."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    return as_json(F.struct(*[column(name) for name in names]))
