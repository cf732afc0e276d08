"""A view as an Iceberg table: one MERGE per transaction, whose snapshot has the sink and the tick as properties.

Iceberg is written by Spark, so that a change costs a job or two; changes that come meanwhile are merged together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.sinks.base import Guarantee
from penstock.sinks.column import quoted
from penstock.sinks.evolution import refuse_incompatible
from penstock.sinks.iceberg import (
    EPOCH,
    IN_OPTIONS,
    QUERY,
    IcebergOptions,
    create_table,
    opaque,
    session_properties,
    transient,
)
from penstock.sinks.key_change import by_key, summed
from penstock.sinks.view_sink import Change, ViewSink, ViewTarget, taken
from penstock.spark.connectors import ensure_format
from penstock.spark.errors import located, translate

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from penstock.config import Settings

STAGE, OP = "penstock_view_change", "_penstock_op"


class IcebergViewSink(ViewSink):
    """A table with the rows of the view."""

    Options = IcebergOptions

    options: IcebergOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self._settings = settings
        self._spark: SparkSession | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"iceberg table {self.options.table}"

    def check(self, target: ViewTarget) -> None:
        spark = self._session(target)
        if spark.catalog.tableExists(self.options.table):
            existing = spark.table(self.options.table)
            refuse_incompatible(existing.schema, _schema(spark, target), where=self.describe(), fixed=True)
            self._refuse_taken(spark, target)

    def open(self, target: ViewTarget) -> int | None:
        self._target = target
        spark = self._session(target)
        if not spark.catalog.tableExists(self.options.table):
            create_table(spark, self.options.table, _schema(spark, target), self.options.partition_by)
        else:
            self._refuse_taken(spark, target)
        return self._read_mark(spark, target)

    def replace(self, rows: pa.Table, tick: int) -> None:
        from pyspark.sql import functions as F  # as PySpark's users have it

        frame = self._session(self.target).createDataFrame(rows)
        writer = frame.writeTo(self.options.table)
        for name, value in self._properties(tick).items():
            writer = writer.option(f"{IN_OPTIONS}{name}", value)
        writer.overwrite(F.lit(True))
        self._refresh()

    def apply(self, changes: Sequence[Change]) -> None:
        import pyarrow as pa

        target = self.target
        change = by_key(summed(changes), target.keys, where=target.name)
        rows = pa.concat_tables([change.deleted, change.updated, change.inserted])
        operations = ["d"] * change.deleted.num_rows + ["u"] * (rows.num_rows - change.deleted.num_rows)
        spark = self._session(target)
        frame = spark.createDataFrame(rows.append_column(OP, pa.array(operations, pa.string())))
        opaque(frame).createOrReplaceTempView(STAGE)
        names = [quoted(name) for name in target.names]
        same = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in target.keys)
        with session_properties(spark, self._properties(changes[-1].tick)):
            spark.sql(
                f"MERGE INTO {self.options.table} AS t USING {STAGE} AS s ON {same} "
                f"WHEN MATCHED AND s.{OP} = 'd' THEN DELETE "
                f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in names)} "
                f"WHEN NOT MATCHED AND s.{OP} <> 'd' THEN INSERT ({', '.join(names)}) "
                f"VALUES ({', '.join(f's.{name}' for name in names)})"
            )
        self._refresh()

    def close(self) -> None:
        self._spark = None

    def transient(self, error: Exception) -> str | None:
        return transient(error)

    def translate(self, error: Exception) -> PenstockError | None:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            return None
        return located(translate(error), self.describe())

    def _session(self, target: ViewTarget) -> SparkSession:
        """A session with settings of its own, which snapshots take their properties from."""
        from pyspark.sql import SparkSession

        if self._spark is None:
            spark = target.spark()
            if self._settings is not None:
                ensure_format(spark, "iceberg", self._settings)
            jsession: Any = spark._jsparkSession.cloneSession()
            self._spark = SparkSession(spark.sparkContext, jsession)
        return self._spark

    def _properties(self, tick: int) -> dict[str, str]:
        return {QUERY: self.target.id, EPOCH: str(tick)}

    def _read_mark(self, spark: SparkSession, target: ViewTarget) -> int | None:
        """The tick of this sink's last snapshot among those that the table's current state is made of."""
        spark.catalog.refreshTable(self.options.table)
        row = spark.sql(
            f"SELECT CAST(s.summary['{EPOCH}'] AS BIGINT) AS tick FROM {self.options.table}.snapshots AS s "
            f"JOIN {self.options.table}.history AS h ON h.snapshot_id = s.snapshot_id "
            f"WHERE h.is_current_ancestor AND s.summary['{QUERY}'] = '{target.id}' "
            "ORDER BY h.made_current_at DESC, tick DESC LIMIT 1"
        ).first()
        return None if row is None else int(row.tick)

    def _refuse_taken(self, spark: SparkSession, target: ViewTarget) -> None:
        if target.overwrite or self._read_mark(spark, target) is not None:
            return
        if not spark.table(self.options.table).isEmpty():
            raise taken(f"the table {self.options.table}", None, where=self.describe())

    def _refresh(self) -> None:
        """Let the user's session see the new snapshot, too."""
        self.target.spark().catalog.refreshTable(self.options.table)


def _schema(spark: SparkSession, target: ViewTarget) -> StructType:
    import pyarrow as pa

    from penstock.data.schema import to_arrow_field

    schema = pa.schema([to_arrow_field(field.name, field.type) for field in target.fields])
    return spark.createDataFrame(schema.empty_table()).schema
