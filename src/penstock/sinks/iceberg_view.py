"""A view as an Iceberg table: one MERGE per transaction, whose snapshot says the sink, the tick, and the snapshots of
the tables that the view stands for.

A change is rows that go and rows that come. Those that go are found by the key, or by all columns in a table without
one, and those that come match nothing: so an update is both, and one statement is enough. Iceberg is written by
Spark, so that a transaction takes a second or two; changes that come meanwhile are merged together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.data.conform import conform_to
from penstock.errors import DataError, PenstockError
from penstock.sinks.base import Guarantee
from penstock.sinks.column import quoted
from penstock.sinks.iceberg import (
    IN_OPTIONS,
    IcebergOptions,
    create_table,
    session_properties,
    transient,
)
from penstock.sinks.key_change import by_key, summed
from penstock.sinks.view_sink import Change, ViewSink, ViewTarget, fenced, taken
from penstock.spark import errors
from penstock.spark.connectors import ensure_format
from penstock.spark.flow_table import numbered_frame
from penstock.spark.iceberg import IcebergTable, Snapshot
from penstock.spark.schema import nullable_ddl, spark_kinds, table_misfits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from penstock.config import Settings

SINK, TICK, SOURCES = "penstock.sink", "penstock.tick", "penstock.sources"
STAGE, OP, ROW = "penstock_view_change", "_penstock_op", "_penstock_row"
MERGE_MODE = "write.merge.mode"
FEW = 200_000
"""Rows of a table from which on a change is merged into it."""
REWRITE = "replace"
"""The operation of snapshots that have the rows of the one before in other files."""


class IcebergViewSink(ViewSink):
    """A table with the rows of the view."""

    Options = IcebergOptions
    needs_key: ClassVar[bool] = False
    notes_sources: ClassVar[bool] = True

    options: IcebergOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self._settings = settings
        self._spark: SparkSession | None = None
        self._table: IcebergTable | None = None
        self._mark: int | None = None

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"iceberg table {self.options.table}"

    def check(self, target: ViewTarget) -> None:
        spark = self._session(target)
        spark_kinds(spark, target.fields)
        found_by = target.keys or target.unique or target.names
        unlike = [field for field in target.fields if field.name in found_by and "map<" in field.type]
        if unlike:
            raise DataError(
                f"column '{unlike[0].name}' is a map: rows of a view without a key are found by all "
                "columns, and maps cannot be compared",
                code="SINK_TYPE",
                where=target.name,
                hint=f"write map_entries({unlike[0].name}) in the view, or follow it with a key: flow.sink(..., key=[...])",
            )
        if spark.catalog.tableExists(self.options.table):
            self._check_columns(spark, target)
            self._refuse_taken(IcebergTable(spark, self.options.table), target)

    def open(self, target: ViewTarget) -> int | None:
        self._target = target
        spark, name = self._session(target), self.options.table
        if not spark.catalog.tableExists(name):
            if target.is_begun():
                raise DataError(
                    f"the table of {target.name} is gone",
                    code="SINK_TABLE_CHANGED",
                    where=self.describe(),
                    hint=f"DROP INCREMENTAL VIEW {name}, and create it again if it is still wanted",
                )
            create_table(spark, name, nullable_ddl(spark, target.fields), self.options.partition_by)
        self._table = IcebergTable(spark, name)
        self._check_columns(spark, target)
        self._refuse_taken(self._table, target)
        if self._table.property(SINK) != target.id:
            self._table.set_properties({SINK: target.id})
        self._mark = self._read_mark(self._table, target)
        self._show_newest()  # an attempt whose answer was lost may have stored something
        return self._mark

    def replace(self, rows: pa.Table, tick: int) -> None:
        self._require_mark()
        self._overwrite(rows, tick)
        self._stored(tick)

    def rewrites(self, changes: Sequence[Change]) -> bool:
        """Whether the table is so small that a MERGE, which is several jobs, would write most of its files again anyway."""
        assert self._table is not None
        newest = last_change(self._table)
        if (
            newest is None
            or newest.says(SINK) != self.target.id
            or not any(map(len, (c.rows for c in changes)))
        ):
            return False
        copies = self._table.property(MERGE_MODE) != "merge-on-read"
        return copies and int(newest.says("total-records") or FEW) < FEW

    def apply(self, changes: Sequence[Change]) -> None:
        tick = changes[-1].tick
        self._require_mark()
        goes, comes = self._goes_and_comes(changes)
        if goes.num_rows or comes.num_rows:
            self._merge(goes, comes, tick)
        else:
            assert self._table is not None
            self._table.stamp(self._properties(tick))
        self._stored(tick)

    def forget(self, target: ViewTarget) -> None:
        spark = self._session(target)
        if spark.catalog.tableExists(self.options.table):
            table = IcebergTable(spark, self.options.table)
            if table.property(SINK) == target.id:
                table.set_properties({SINK: ""})

    def close(self) -> None:
        self._spark = self._table = None

    def transient(self, error: Exception) -> str | None:
        return transient(error)

    def translate(self, error: Exception) -> PenstockError | None:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            return None
        return errors.located(errors.translate(error), self.describe())

    # Rows

    def _goes_and_comes(self, changes: Sequence[Change]) -> tuple[pa.Table, pa.Table]:
        """Rows by which all like them are deleted, and the rows to insert."""
        import numpy as np
        import pyarrow as pa

        target, change = self.target, summed(changes)
        if target.keys:
            keyed = by_key(change, target.keys, where=target.name)
            return (
                pa.concat_tables([keyed.deleted, keyed.replaced]),
                pa.concat_tables([keyed.updated, keyed.inserted]),
            )
        weights = np.asarray(change.weights)
        gone, come = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
        goes = change.table.take(gone)
        counted = goes.num_rows and target.unique is None
        left = self._left(goes, -weights[gone]) if counted else np.zeros(goes.num_rows, np.int64)
        again = np.repeat(np.arange(goes.num_rows), left)
        comes = change.table.take(np.repeat(come, weights[come]))
        return goes, pa.concat_tables([goes.take(again), comes])

    def _left(self, goes: pa.Table, times: Any) -> Any:
        """How many copies stay of rows that go so many times; DataError when the table has not so many."""
        import numpy as np

        spark = self._session(self.target)
        self._frame(goes).createOrReplaceTempView(STAGE)
        try:
            counts = spark.sql(
                f"SELECT s.{ROW} AS at, count(*) AS copies FROM {STAGE} AS s JOIN {self.options.table} AS t "
                f"ON {self._same(self.target.names)} GROUP BY s.{ROW}"
            ).collect()
        finally:
            spark.catalog.dropTempView(STAGE)
        left = -np.asarray(times, np.int64)
        for row in counts:
            left[row["at"]] += row["copies"]
        if (left < 0).any():
            raise self._changed_by_others("it lacks rows that the view had")
        return left

    def _overwrite(self, rows: pa.Table, tick: int) -> None:
        from pyspark.sql import functions as F  # as PySpark's users have it

        if rows.num_rows < FEW and self._overwrite_by_arrow(rows, tick):
            return
        writer = self._frame(rows).drop(ROW).writeTo(self.options.table)
        for name, value in self._properties(tick).items():
            writer = writer.option(f"{IN_OPTIONS}{name}", value)
        writer.overwrite(F.lit(True))

    def _overwrite_by_arrow(self, rows: pa.Table, tick: int) -> bool:
        """Write the rows without a job of Spark; False, and nothing is done, when the table takes more than that."""
        assert self._table is not None
        fields = self.target.fields
        kinds = spark_kinds(self._session(self.target), fields)
        columns = conform_to(
            rows,
            [(field.name, kind, True) for field, kind in zip(fields, kinds, strict=True)],
            where=self.target.name,
        )
        named = dict(zip(self.target.names, kinds, strict=True))
        return self._table.overwrite(named, columns, self._properties(tick))

    def _merge(self, goes: pa.Table, comes: pa.Table, tick: int) -> None:
        import pyarrow as pa

        spark, target = self._session(self.target), self.target
        operations = pa.array(["d"] * goes.num_rows + ["i"] * comes.num_rows, pa.string())
        rows = pa.concat_tables([goes, comes])
        self._frame(rows, operations).createOrReplaceTempView(STAGE)
        names = [quoted(name) for name in target.names]
        try:
            with session_properties(spark, self._properties(tick)):
                spark.sql(
                    f"MERGE INTO {self.options.table} AS t USING {STAGE} AS s "
                    f"ON s.{OP} = 'd' AND {self._same(target.keys or target.unique or target.names)} "
                    f"WHEN MATCHED THEN DELETE "
                    f"WHEN NOT MATCHED AND s.{OP} = 'i' THEN INSERT ({', '.join(names)}) "
                    f"VALUES ({', '.join(f's.{name}' for name in names)})"
                )
        finally:
            spark.catalog.dropTempView(STAGE)

    def _same(self, columns: Sequence[str]) -> str:
        # A key is never NULL; whole rows may have one anywhere.
        equal = "=" if self.target.keys else "<=>"
        return " AND ".join(f"t.{quoted(name)} {equal} s.{quoted(name)}" for name in columns)

    def _frame(self, rows: pa.Table, operations: pa.Array | None = None) -> DataFrame:
        """Rows as Spark has them, with their numbers, and what happens to them."""
        spark, kinds = self._session(self.target), spark_kinds(self._session(self.target), self.target.fields)
        if operations is not None:
            rows, kinds = rows.append_column(OP, operations), (*kinds, "string")
        return numbered_frame(spark, rows, kinds, number=ROW)

    # Who may write

    def _check_columns(self, spark: SparkSession, target: ViewTarget) -> None:
        misfits = table_misfits(spark, self.options.table, target.fields)
        if misfits:
            raise DataError(
                f"the table {self.options.table} does not fit the view: {'; '.join(misfits)}",
                code="STREAM_SCHEMA_CHANGED",
                where=self.describe(),
                hint="cast the columns in the view, or write to another table",
            )

    def _refuse_taken(self, table: IcebergTable, target: ViewTarget) -> None:
        owner = table.property(SINK)
        if target.overwrite or owner == target.id:
            return
        if owner:
            raise taken(
                f"the table {table.name}", "another view or another life of this one", where=self.describe()
            )
        if not self._session(target).table(table.name).isEmpty():
            raise taken(f"the table {table.name}", None, where=self.describe())

    def _require_mark(self) -> None:
        """ConnectorError when the table was taken over, or another process has moved the mark."""
        assert self._table is not None, "the sink was not opened"
        self._table.refresh()
        owned = self._table.property(SINK) == self.target.id
        if not owned or self._read_mark(self._table, self.target) != self._mark:
            raise fenced(f"the table {self.options.table}", where=self.describe())

    def _read_mark(self, table: IcebergTable, target: ViewTarget) -> int | None:
        """The tick of the current rows; None when no snapshot that is kept says it. DataError when the rows are not
        the sink's."""
        newest = last_change(table)
        if newest is None:
            return None
        if newest.says(SINK) == target.id:
            return int(newest.says(TICK) or 0)
        ours = any(snapshot.says(SINK) == target.id for snapshot in table.lineage())
        if ours and not target.overwrite:
            raise self._changed_by_others(f"snapshot {newest.id} ({newest.operation}) is not the view's")
        return None

    def _changed_by_others(self, why: str) -> PenstockError:
        return DataError(
            f"the table {self.options.table} is not what the view made of it: {why}",
            code="SINK_TABLE_CHANGED",
            where=self.describe(),
            hint="let nothing else write to it; roll it back to the last snapshot of the view, "
            "or drop the sink and register it with overwrite=True to bring it in line",
        )

    def _properties(self, tick: int) -> dict[str, str]:
        sources = self.target.sources(tick)
        source_properties = {SOURCES: json.dumps(sources, sort_keys=True)} if sources else {}
        return {SINK: self.target.id, TICK: str(tick), **source_properties}

    def _stored(self, tick: int) -> None:
        self._mark = tick
        self._show_newest()

    def _show_newest(self) -> None:
        """Let the user's session see what this one has stored: each keeps the snapshot of a table that it has read."""
        assert self.target.spark is not None
        self.target.spark().catalog.refreshTable(self.options.table)

    def _session(self, target: ViewTarget) -> SparkSession:
        """A session with settings of its own, which snapshots take their properties from."""
        from pyspark.sql import SparkSession

        if self._spark is None:
            assert target.spark is not None, "the flow has no session"
            spark = target.spark()
            if self._settings is not None:
                ensure_format(spark, "iceberg", self._settings)
            jsession: Any = spark._jsparkSession.cloneSession()
            self._spark = SparkSession(spark.sparkContext, jsession)
        return self._spark


def last_change(table: IcebergTable) -> Snapshot | None:
    """The snapshot that the current rows are of; None when it is not kept, or there is none."""
    return next((snapshot for snapshot in table.lineage() if snapshot.operation != REWRITE), None)
