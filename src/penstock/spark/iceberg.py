"""Iceberg tables through their own interface in the JVM: snapshots and what they say, and the rows that differ between two of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark.arrow import to_arrow
from penstock.spark.boot import janino

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

WEIGHT = "_weight"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state of a table."""

    id: int
    operation: str
    _summary: Any

    def says(self, name: str) -> str | None:
        """What its summary says of something."""
        value = self._summary.get(name)
        return None if value is None else str(value)


class IcebergTable:
    """A table as it is when it is loaded, or when `refresh` was called last."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        jvm: Any = spark._jvm
        self.name = name
        self._spark = spark
        self._table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
        self.refresh()

    def refresh(self) -> None:
        """Look at what others have committed."""
        self._table.refresh()

    @property
    def snapshot(self) -> int | None:
        """The current snapshot; None of a table that never had one."""
        current = self._table.currentSnapshot()
        return None if current is None else int(current.snapshotId())

    def lineage(self) -> Iterator[Snapshot]:
        """The snapshots that led to the current state, the newest first, as far as they are kept."""
        at = self._table.currentSnapshot()
        while at is not None:
            yield Snapshot(int(at.snapshotId()), str(at.operation()), at.summary())
            parent = at.parentId()
            at = None if parent is None else self._table.snapshot(parent)

    def property(self, name: str) -> str | None:
        """A property of the table."""
        value = self._table.properties().get(name)
        return None if value is None else str(value)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table."""
        update = self._table.updateProperties()
        for name, value in properties.items():
            update.set(name, value)
        update.commit()

    def columns(self) -> list[tuple[str, str, int]]:
        """The columns: their names, their types in Spark, and their ids, which outlive their names."""
        from pyspark.sql.types import StructType

        jvm: Any = self._spark._jvm
        schema = self._table.schema()
        types = json.loads(jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(schema).json())["fields"]
        ids = [int(field.fieldId()) for field in schema.columns()]
        kinds = StructType.fromJson({"type": "struct", "fields": types})
        return [
            (item.name, item.dataType.simpleString(), number) for item, number in zip(kinds, ids, strict=True)
        ]

    def stamp(self, properties: Mapping[str, str]) -> None:
        """Commit a snapshot that changes no row and says something."""
        append = self._table.newAppend()
        for name, value in properties.items():
            append.set(name, value)
        append.commit()

    def has(self, snapshot: int) -> bool:
        """Whether rows can be read as they were in a snapshot."""
        return self._table.snapshot(snapshot) is not None

    def changes(self, since: int | None, until: int, columns: Sequence[str]) -> pa.Table:
        """The rows that came between two snapshots and those that went, with `_weight`; some may come and go.

        Both snapshots must be kept. Without the first one all rows came. Only files that are not in both snapshots are read.
        """
        java = janino.instance(self._spark, __package__, "TableChanges")
        staged = f"penstock-{uuid.uuid4().hex}"
        try:
            came, went = java.stage(self._table, since, until, staged)
            parts = [
                self._rows(java, f"{staged}{sign}", columns, weight)
                for sign, weight, files in (("+", 1, came), ("-", -1, went))
                if files
            ]
            if not parts:
                return self._empty(columns)
            return to_arrow(parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1]))
        finally:
            java.forget(self._table, staged)

    def _rows(self, java: Any, staged: str, columns: Sequence[str], weight: int) -> DataFrame:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F  # as PySpark's users have it

        frame = DataFrame(java.frame(self._spark._jsparkSession, self._table, staged), self._spark)
        return frame.select(
            *(F.col(f"`{name.replace('`', '``')}`") for name in columns),
            F.lit(weight).cast("bigint").alias(WEIGHT),
        )

    def _empty(self, columns: Sequence[str]) -> pa.Table:
        from pyspark.sql import functions as F  # as PySpark's users have it

        frame = self._spark.table(self.name).select(*(f"`{name.replace('`', '``')}`" for name in columns))
        return to_arrow(frame.limit(0).withColumn(WEIGHT, F.lit(0).cast("bigint")))
