"""A dynamic table of a pipeline, from one epoch to the next.

Rows that come into it in an epoch are there for all checks of the same epoch: tables are brought up to date before
queries run. An epoch that is run again adds and removes the same values again, which changes nothing; what others
changed meanwhile it sees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.data.operation import DELETE, OPERATION
from penstock.errors import ConfigError, DataError
from penstock.sinks.column import column
from penstock.sinks.last_by_key import last_of_each_key
from penstock.transforms.dynamic_table.members import Members, kind_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from penstock.transforms.base import TransformContext


class DynamicTable(ABC):
    """A set of values; all methods are called on the driver, from one thread at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._members: Members | None = None

    @property
    def members(self) -> Members:
        """What is in it, as far as it was read."""
        assert self._members is not None, "the table is not open"
        return self._members

    @abstractmethod
    def check(self, context: TransformContext, columns: StructType | None) -> None:
        """Called by a dry run: refuse what cannot work, and change nothing; `columns` are those of its query, None
        without one."""

    @abstractmethod
    def open(self, context: TransformContext, columns: StructType | None) -> None:
        """Called before the first epoch of each run: read what is there."""

    @abstractmethod
    def update(self, epoch: int, rows: DataFrame | None) -> None:
        """Called when an epoch begins: take what others have changed, and the rows of the epoch, and let them last."""

    def close(self) -> None:
        """Called after the last epoch; `open` may come again."""
        self._members = None

    def value_column(self, columns: StructType) -> str:
        """The column of the query with the values; refused when it has another number of them."""
        names = [name for name in columns.names if name != OPERATION]
        if len(names) != 1:
            raise ConfigError(
                f"the query of the dynamic table {self.name} gives {len(names)} columns ({', '.join(names)})",
                code="DYNAMIC_TABLE_COLUMNS",
                hint="select the one with the values",
            )
        return names[0]

    def type_of(self, columns: StructType) -> str:
        """The type of the values that the query gives, by Spark's name."""
        kind: str = columns[self.value_column(columns)].dataType.simpleString()
        kind_of(kind)
        return kind


def changes(rows: DataFrame, name: str, members: Members) -> tuple[pa.Array, pa.Array]:
    """What rows add and remove: of several rows with one value, the last one counts."""
    from pyspark.sql import functions as F  # as PySpark's users have it

    value = column(name).alias("value")
    if OPERATION not in rows.columns:
        added = rows.select(value).where(value.isNotNull()).distinct().toArrow()
        return members.array(added.column("value")), members.array([])
    gone = column(OPERATION).eqNullSafe(DELETE).alias("gone")
    last = last_of_each_key(rows.select(value, gone).where(F.col("value").isNotNull()), ["value"]).toArrow()
    removes = last.column("gone")
    import pyarrow.compute as pc

    return (
        members.array(last.column("value").filter(pc.invert(removes))),
        members.array(last.column("value").filter(removes)),
    )


def parsed(texts: Sequence[str], type_name: str, *, table: str) -> pa.Array:
    """Values that somebody typed, in the type of a table."""
    import pyarrow as pa

    try:
        return Members(type_name).array(pa.array(texts, pa.string()))
    except pa.ArrowInvalid as error:
        raise DataError(
            f"the dynamic table {table} holds values of the type {type_name}: {error}",
            code="DYNAMIC_TABLE_VALUE",
            hint="write numbers in digits, days as 2026-01-31",
        ) from None
