"""Tables of a lake as sources of a flow: what they are, which version they have now, and what changed between two versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.errors import ConfigError, PenstockError, StateError
from penstock.plan.node import Field, Fields
from penstock.spark import delta, errors
from penstock.spark.iceberg import IcebergTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FORMATS = ("iceberg", "delta")


@dataclass(frozen=True, slots=True)
class TableInfo:
    """The format and the columns of a table, with their ids where the format has them."""

    format: str
    fields: Fields
    ids: tuple[int, ...]


class LakeTable(Protocol):
    """A table with versions."""

    def version(self) -> str | None:
        """The version of now; None when the table never had one."""

    def has(self, version: str) -> bool:
        """Whether the changes behind a version can be read."""

    def rows(self, since: str | None, until: str | None, columns: Sequence[str]) -> pa.Table:
        """What came and went between two versions, with `_weight`; None stands for a table without rows."""


def describe(spark: SparkSession, name: str) -> TableInfo:
    """What a table is; ConfigError when it is none whose changes can be read."""
    try:
        kind = format_of(spark, name)
        if kind not in FORMATS:
            raise ConfigError(
                f"'{name}' is no table of Iceberg or Delta" + (f", but of {kind}" if kind else ""),
                code="FLOW_TABLE_FORMAT",
                hint="changes are read of Iceberg and Delta tables; a view may join any other table as it is, "
                "and REFRESH INCREMENTAL VIEW reads it again",
            )
        if kind == "iceberg":
            return _iceberg_info(spark, name)
        delta.require_feed(spark, name)
        schema = spark.table(name).schema
        fields = tuple(Field(item.name, item.dataType.simpleString(), True) for item in schema)
        return TableInfo(kind, fields, ())
    except PenstockError:
        raise
    except Exception as error:
        raise errors.translate(error, spark=spark) from None


def _iceberg_info(spark: SparkSession, name: str) -> TableInfo:
    table = IcebergTable(spark, name)
    if table.part is not None:
        raise ConfigError(
            f"'{name}' is {table.part} of an Iceberg table, and no table whose changes can be read",
            code="FLOW_TABLE_FORMAT",
            hint="name the table itself",
        )
    columns = table.columns()
    fields = tuple(Field(column, kind, True) for column, kind, _ in columns)
    return TableInfo("iceberg", fields, tuple(number for _, _, number in columns))


def format_of(spark: SparkSession, name: str) -> str | None:
    """The format of a table, in small letters; None of a view."""
    spark.catalog.refreshTable(name)
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    return next((str(row.data_type).lower() for row in rows if row.col_name == "Provider"), None)


def is_iceberg(spark: SparkSession, name: str) -> bool:
    """Whether a name is that of an Iceberg table, and not of a branch or of what a table says of itself."""
    return format_of(spark, name) == "iceberg" and IcebergTable(spark, name).part is None


def opened(spark: SparkSession, name: str, kind: str) -> LakeTable:
    """A table as it is now."""
    return _Iceberg(spark, name) if kind == "iceberg" else delta.DeltaTable(spark, name)


def require_same(spark: SparkSession, name: str, fields: Fields, ids: Sequence[int], *, source: str) -> None:
    """StateError when a column of a source is not in its table any more, or is another one; columns that were added
    do no harm."""
    now = _iceberg_info(spark, name) if ids else describe(spark, name)
    types = {field.name: field.type for field in now.fields}
    current_ids = dict(zip((field.name for field in now.fields), now.ids, strict=True)) if now.ids else {}
    misfits = []
    for at, field in enumerate(fields):
        if field.name not in types:
            misfits.append(f"column '{field.name}' is gone")
        elif types[field.name] != field.type:
            misfits.append(f"column '{field.name}' was {field.type} and is {types[field.name]}")
        elif ids and current_ids.get(field.name) != ids[at]:
            misfits.append(f"column '{field.name}' is another one of this name")
    if misfits:
        raise StateError(
            f"the table {name} has changed its columns: {'; '.join(misfits)}",
            code="FLOW_TABLE_SCHEMA",
            where=f"source '{source}'",
            hint="drop the source and what reads it, and create it again",
        )


class _Iceberg:
    def __init__(self, spark: SparkSession, name: str) -> None:
        self._table = IcebergTable(spark, name)

    def version(self) -> str | None:
        snapshot = self._table.snapshot
        return None if snapshot is None else str(snapshot)

    def has(self, version: str) -> bool:
        return self._table.has(int(version))

    def rows(self, since: str | None, until: str | None, columns: Sequence[str]) -> pa.Table:
        first, last = (None if version is None else int(version) for version in (since, until))
        return self._table.changes(first, last, columns)
