"""Rows in an Iceberg table, one snapshot per epoch: exactly once.

A snapshot is committed as a whole and carries the query and the epoch as properties of its own. The last epoch that is there is
looked up in the snapshots that led to the table's current state, so a table that was rolled back takes the epochs again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from penstock import config
from penstock.sinks.base import Epoch, Guarantee, Sink, Target, counted, require_key
from penstock.sinks.column import column, quoted
from penstock.sinks.evolution import refuse_incompatible
from penstock.sinks.last_by_key import last_of_each_key
from penstock.sinks.retry import RETRY_FOR, RetryPolicy, retry
from penstock.spark.connectors import ensure_format
from penstock.spark.errors.cause import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")

LOG = logging.getLogger("penstock.sinks")
QUERY, EPOCH = "penstock.query", "penstock.epoch"
IN_OPTIONS, IN_SESSION = "snapshot-property.", "spark.sql.iceberg.snapshot-property."

# Kinds of exceptions of catalogs and stores that are away for a while, and of commits that lost a race.
PASSING_KINDS = (
    "CommitStateUnknownException",
    "CommitFailedException",
    "ServiceUnavailableException",
    "ServiceFailureException",
    "UncheckedSQLException",
    "ConnectException",
    "HttpHostConnectException",
    "NoHttpResponseException",
    "SocketTimeoutException",
    "SocketException",
    "UnknownHostException",
)
PASSING_WORDS = ("Connection refused", "Connection reset", "Found conflicting files", "Found new conflicting")


class IcebergSink(Sink):
    """Appends, merges by key in update mode, replaces all rows in complete mode."""

    taken: ClassVar[tuple[str, ...]] = ("table", "partition_by", "retry_for")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.only_known()
        self.table = str(self.required("table"))
        self._policy = RetryPolicy.of(self.options.get("retry_for", RETRY_FOR))
        self._unsure = False
        self._first = True

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"iceberg table {self.table}"

    def check(self, target: Target) -> None:
        self._status = target.status
        require_key(target)
        ensure_format(target.spark, "iceberg", config.load())
        self._retry(lambda: self._checked(target), self._policy.at_start())

    def open(self, target: Target) -> None:
        self._target, self._status = target, target.status
        self._retry(lambda: self._prepare(target), self._policy.at_start())

    def write(self, epoch: Epoch) -> int | None:
        if self._first:
            self._first = False
            if self._mark < 0 < epoch.number:
                LOG.warning(
                    "the query %s goes on with epoch %d, and no snapshot of %s is its own: if they were expired after the query "
                    "was killed in the middle of a commit, this epoch may come twice",
                    self._target.name,
                    epoch.number,
                    self.table,
                )
        return self._retry(lambda: self._commit(epoch), self._policy)

    def _commit(self, epoch: Epoch) -> int:
        if self._unsure:
            self._mark = self._committed(epoch.frame.sparkSession)
            self._unsure = False
        if epoch.number <= self._mark:
            return 0
        properties = {QUERY: self._target.query, EPOCH: str(epoch.number)}
        frame = self._fitted(epoch.frame)
        if self._target.mode == "append" and self._target.stateful and frame.isEmpty():
            rows = 0  # a batch that only moved the watermark: one that comes again has no rows either
        elif self._target.mode == "update":
            rows = self._merge(frame, properties)
        else:
            rows = self._write(frame, properties)
        self._mark = epoch.number
        # Batches run in a session of their own, and the user's one would go on with the snapshot that it knows.
        self._target.spark.catalog.refreshTable(self.table)
        return rows

    def _write(self, frame: DataFrame, properties: Mapping[str, str]) -> int:
        from pyspark.sql import functions as F  # as PySpark's users have it

        watched, rows = counted(frame)
        writer = watched.writeTo(self.table)
        for name, value in properties.items():
            writer = writer.option(f"{IN_OPTIONS}{name}", value)
        if self._target.mode == "complete":
            writer.overwrite(F.lit(True))
        else:
            writer.append()
        return rows()

    def _merge(self, frame: DataFrame, properties: Mapping[str, str]) -> int:
        """Merge the last row of each key; the rows are kept for a moment, because a merge may read them twice."""
        spark, keys = frame.sparkSession, self._target.keys
        last = _opaque(last_of_each_key(frame, keys)).persist()
        view = f"penstock_epoch_{self._target.query.replace('-', '')}"
        same = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys)
        try:
            rows = last.count()
            if not rows:
                return 0
            last.createOrReplaceTempView(view)
            with _session_properties(spark, properties):
                spark.sql(
                    f"MERGE INTO {self.table} AS t USING {view} AS s ON {same} "
                    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )
        finally:
            spark.catalog.dropTempView(view)
            last.unpersist()
        return rows

    def _checked(self, target: Target) -> None:
        if target.spark.catalog.tableExists(self.table):
            there = target.spark.table(self.table).schema
            refuse_incompatible(there, _widened(target, there), where=self.describe())

    def _prepare(self, target: Target) -> None:
        spark = target.spark
        if not spark.catalog.tableExists(self.table):
            namespace = self.table.rpartition(".")[0]
            if namespace.count("."):
                spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
            parts = self.options.get("partition_by")
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self.table} ({_ddl(spark, target.schema)}) USING iceberg"
                + (
                    f" PARTITIONED BY ({parts if isinstance(parts, str) else ', '.join(parts)})"
                    if parts
                    else ""
                )
            )
        known = {name.lower() for name in spark.table(self.table).columns}
        added = [field for field in target.schema if field.name.lower() not in known]
        if added:
            from pyspark.sql.types import StructType

            spark.sql(f"ALTER TABLE {self.table} ADD COLUMNS ({_ddl(spark, StructType(added))})")
        self._mark = self._committed(spark)

    def _committed(self, spark: SparkSession) -> int:
        """The last epoch of this query among the snapshots that the table's current state is made of."""
        spark.catalog.refreshTable(self.table)  # another process may have written since this one looked
        found = spark.sql(
            f"SELECT max(CAST(s.summary['{EPOCH}'] AS BIGINT)) AS epoch FROM {self.table}.snapshots AS s "
            f"JOIN {self.table}.history AS h ON h.snapshot_id = s.snapshot_id "
            f"WHERE h.is_current_ancestor AND s.summary['{QUERY}'] = '{self._target.query}'"
        ).first()
        return -1 if found is None or found.epoch is None else int(found.epoch)

    def _fitted(self, frame: DataFrame) -> DataFrame:
        """The frame with the table's columns; those that the query does not have are NULL."""
        from pyspark.sql import functions as F  # as PySpark's users have it

        mine = {name.lower(): name for name in frame.columns}
        return frame.select(
            *[
                (column(mine[field.name.lower()]) if field.name.lower() in mine else F.lit(None))
                .cast(field.dataType)
                .alias(field.name)
                for field in frame.sparkSession.table(self.table).schema
            ]
        )

    def _retry(self, action: Callable[[], T], policy: RetryPolicy) -> T:
        return retry(
            action, status=self._status, description=self.describe(), policy=policy, transient=self._passing
        )

    def _passing(self, error: Exception) -> str | None:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            return None
        for fault in reversed(faults(error)):
            if fault.kind.rpartition(".")[2] in PASSING_KINDS or any(
                word in fault.message for word in PASSING_WORDS
            ):
                # It may have been committed all the same: the snapshots know.
                self._unsure = True
                return fault.message.splitlines()[0][:200] if fault.message else fault.kind
        return None


@contextlib.contextmanager
def _session_properties(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Give the snapshots of statements properties; a query's batches run in a session of their own, so nobody else's get them."""
    for name, value in properties.items():
        spark.conf.set(f"{IN_SESSION}{name}", value)
    try:
        yield
    finally:
        for name in properties:
            spark.conf.unset(f"{IN_SESSION}{name}")


def _opaque(frame: DataFrame) -> DataFrame:
    """The rows of a frame without its plan: a merge refuses one in which rows are numbered."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark = frame.sparkSession
    execution = frame._jdf.queryExecution()
    made = spark._jsparkSession.internalCreateDataFrame(
        execution.toRdd(), execution.analyzed().schema(), False
    )
    return ClassicDataFrame(made, spark)


def _widened(target: Target, there: StructType) -> StructType:
    """The query's schema, with the table's type where every value fits into it."""
    from pyspark.sql.types import StringType, StructField, StructType

    jvm: Any = target.spark._jvm
    types = jvm.org.apache.spark.sql.types.DataType
    cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast
    known = {field.name.lower(): field for field in there}
    fields = []
    for field in target.schema:
        old = known.get(field.name.lower())
        if old is not None:
            fits = not isinstance(old.dataType, StringType) and cast.canUpCast(
                types.fromJson(field.dataType.json()), types.fromJson(old.dataType.json())
            )
            field = StructField(old.name, old.dataType if fits else field.dataType)
        fields.append(field)
    return StructType(fields)


def _ddl(spark: SparkSession, schema: StructType) -> str:
    """Columns that may all be NULL: a later version of the query may lack one."""
    from pyspark.sql.types import StructField, StructType

    jvm: Any = spark._jvm
    nullable = StructType([StructField(field.name, field.dataType) for field in schema])
    return str(jvm.org.apache.spark.sql.types.DataType.fromJson(nullable.json()).toDDL())
