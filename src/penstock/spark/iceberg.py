"""Iceberg tables through their own interface in the JVM: snapshots and what they say, and the rows that differ
between two of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.data.operation import WEIGHT
from penstock.data.types import kernel_type
from penstock.spark import data_file
from penstock.spark.arrow import to_arrow
from penstock.spark.boot import janino
from penstock.spark.data_file import CODECS, FileColumn, file_type, local_path
from penstock.spark.errors.cause import faults

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

CODEC = "write.parquet.compression-codec"
FILE_SETTINGS = ("write.parquet.", "encryption.")
"""Properties of a table that say how its files are written."""
SELECTORS = ("branch_", "tag_", "at_timestamp_", "snapshot_id_")
"""What a part of a name begins with that chooses other rows than those of now."""
NOT_COMMITTED = ("ValidationException", "CommitFailedException")
"""The errors after which it is sure that nothing was committed."""


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

    @property
    def part(self) -> str | None:
        """What a name stands for that is not the table itself: a branch, a tag or a version, or a table that says
        something of it."""
        kind = self._table.getClass()
        while kind is not None:
            if str(kind.getSimpleName()) == "BaseMetadataTable":
                return "a description"
            kind = kind.getSuperclass()
        last = self.name.replace("`", "").rpartition(".")[2].lower()
        is_selected = last.startswith(SELECTORS) and not str(self._table.name()).lower().endswith(f".{last}")
        return "a branch, a tag or a version" if is_selected else None

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
        ids = [int(field["id"]) for field in self._fields()]
        kinds = StructType.fromJson({"type": "struct", "fields": types})
        return [
            (item.name, item.dataType.simpleString(), number) for item, number in zip(kinds, ids, strict=True)
        ]

    def _fields(self) -> list[dict[str, Any]]:
        """The columns as Iceberg's JSON has them."""
        jvm: Any = self._spark._jvm
        fields: list[dict[str, Any]] = json.loads(
            jvm.org.apache.iceberg.SchemaParser.toJson(self._table.schema())
        )["fields"]
        return fields

    def stamp(self, properties: Mapping[str, str]) -> None:
        """Commit a snapshot that changes no row and says something."""
        append = self._table.newAppend()
        for name, value in properties.items():
            append.set(name, value)
        append.commit()

    def overwrite(
        self, kinds: Mapping[str, str], rows: Sequence[pa.Array], properties: Mapping[str, str]
    ) -> bool:
        """Have these rows instead of all, in one snapshot that says something; False, and nothing is done, when that takes Spark.

        `kinds` are the columns of the rows and their types in Spark. The file is written by Arrow. A snapshot that
        somebody has committed since the last `refresh` makes it fail.
        """
        columns = self._written_by_arrow(kinds)
        if columns is None:
            return False
        jvm: Any = self._spark._jvm
        everything = jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        commit = self._table.newOverwrite().overwriteByRowFilter(everything)
        commit.conflictDetectionFilter(everything).validateNoConflictingData().validateNoConflictingDeletes()
        if self.snapshot is not None:
            commit.validateFromSnapshot(self.snapshot)
        for name, value in properties.items():
            commit.set(name, value)
        location = str(self._table.locationProvider().newDataLocation(f"{uuid.uuid4().hex}.parquet"))
        path = local_path(location)
        if path is None:
            return False
        if len(rows[0]):
            codec = self.property(CODEC) or "zstd"
            data_file.write_columns(path, rows, columns, codec=codec)
            commit.addFile(self._data_file(location))
        try:
            commit.commit()
        except Exception as error:
            if any(fault.kind.endswith(NOT_COMMITTED) for fault in faults(error)):
                path.unlink(missing_ok=True)
            raise
        return True

    def _written_by_arrow(self, kinds: Mapping[str, str]) -> list[FileColumn] | None:
        """The columns of the table in an order, if a file that Arrow writes is what Spark would write; None otherwise."""
        jvm: Any = self._spark._jvm
        table = self._table
        settings = str(jvm.java.lang.String.join("\n", table.properties().keySet())).split("\n")
        special = [name for name in settings if name.startswith(FILE_SETTINGS) and name != CODEC]
        is_plain = (
            not special
            and (self.property(CODEC) or "zstd") in CODECS
            and (self.property("write.format.default") or "parquet") == "parquet"
            and table.spec().isUnpartitioned()
            and table.sortOrder().isUnsorted()
            and not any(field["required"] for field in self._fields())
        )
        columns = {column.name: column for column in self._file_columns()} if is_plain else {}
        fits = bool(columns) and all(
            name in columns and columns[name].kind == kind and file_type(kind) is not None
            for name, kind in kinds.items()
        )
        return [columns[name] for name in kinds] if fits else None

    def _data_file(self, location: str) -> Any:
        """A file that was written, as the table knows it, with the least and greatest values of its columns."""
        jvm: Any = self._spark._jvm
        iceberg, table = jvm.org.apache.iceberg, self._table
        file = table.io().newInputFile(location)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, iceberg.MetricsConfig.forTable(table))
        builder = iceberg.DataFiles.builder(table.spec()).withInputFile(file)
        return builder.withFormat("parquet").withMetrics(metrics).build()

    def has(self, snapshot: int) -> bool:
        """Whether rows can be read as they were in a snapshot."""
        return self._table.snapshot(snapshot) is not None

    def changes(self, since: int | None, until: int | None, columns: Sequence[str]) -> pa.Table:
        """The rows that came between two snapshots and those that went, with `_weight`; some may come and go.

        Both snapshots must be kept. Without the first one all rows came, without the second all went. Only files that
        are not in both snapshots are read.
        """
        java = janino.instance(self._spark, __package__, "TableChanges")
        java.compare(self._table, since, until)
        parts: list[pa.Table] = []
        frames: list[DataFrame] = []
        staged = f"penstock-{uuid.uuid4().hex}"
        try:
            for is_coming, weight in ((True, 1), (False, -1)):
                plain = self._read_plain(str(java.plain(is_coming)).split("\n")[:-1], columns)
                parts += (_weighted(rows, weight) for rows in plain.values())
                if java.stage(self._table, is_coming, list(plain), f"{staged}{weight}"):
                    frames.append(self._staged(java, f"{staged}{weight}", columns, weight))
            if frames:
                parts.append(to_arrow(frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])))
        finally:
            for weight in (1, -1):
                java.forget(self._table, f"{staged}{weight}")
        return self._together(parts, columns) if parts else self._empty(columns)

    def _together(self, parts: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
        import pyarrow as pa

        schema = parts[0].schema
        if any(part.schema != schema for part in parts):
            # Spark's settings choose among Arrow's types, and files have one of them.
            kinds = {name: kind for name, kind, _ in self.columns()}
            schema = pa.schema(
                [*((name, kernel_type(kinds[name])) for name in columns), (WEIGHT, pa.int64())]
            )
        return pa.concat_tables([part.cast(schema) for part in parts])

    def _read_plain(self, locations: Sequence[str], columns: Sequence[str]) -> dict[int, pa.Table]:
        """The rows of the files that Arrow can read, by their position; a location is empty when it is not plain."""
        if not any(map(local_path, locations)):
            return {}
        columns_by_name = {column.name: column for column in self._file_columns()}
        wanted = [columns_by_name[name] for name in columns]
        tables = {
            at: data_file.read_columns(path, wanted)
            for at, location in enumerate(locations)
            if (path := local_path(location)) is not None
            and path.is_file()  # or on the disk of another machine
        }
        return {at: rows for at, rows in tables.items() if rows is not None}

    def _file_columns(self) -> list[FileColumn]:
        return [FileColumn(*column) for column in self.columns()]

    def _staged(self, java: Any, staged: str, columns: Sequence[str], weight: int) -> DataFrame:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F  # as PySpark's users have it

        frame = DataFrame(java.frame(self._spark._jsparkSession, self._table, staged), self._spark)
        return frame.select(
            *(F.col(f"`{name.replace('`', '``')}`") for name in columns),
            F.lit(weight).cast("bigint").alias(WEIGHT),
        )

    def _empty(self, columns: Sequence[str]) -> pa.Table:
        frame = self._spark.table(self.name).select(*(f"`{name.replace('`', '``')}`" for name in columns))
        return _weighted(to_arrow(frame.limit(0)), 0)


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    return rows.append_column(WEIGHT, pa.array(np.full(rows.num_rows, weight, np.int64)))
