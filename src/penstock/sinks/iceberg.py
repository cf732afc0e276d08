"""Rows in an Iceberg table, one snapshot per epoch: exactly once.

A snapshot is committed as a whole and carries the query and the epoch as properties. The sink looks for the last epoch in the
snapshots that led to the table's current state, so a table that was rolled back takes the epochs again.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from penstock.data.operation import DELETE
from penstock.options import Expressions
from penstock.sinks.base import Epoch, Guarantee, Target, counted
from penstock.sinks.column import column, quoted
from penstock.sinks.evolution import refuse_incompatible
from penstock.sinks.last_by_key import last_of_each_key
from penstock.sinks.operation import inserts_alone, inserts_of, require_rows_by_key, stored_schema
from penstock.sinks.server import ServerOptions, ServerSink
from penstock.spark.connectors import ensure_format
from penstock.spark.errors.cause import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.config import Settings

LOG = logging.getLogger("penstock.sinks")
QUERY, EPOCH = "penstock.query", "penstock.epoch"
OPERATION = "penstock_operation"
IN_OPTIONS, IN_SESSION = "snapshot-property.", "spark.sql.iceberg.snapshot-property."

# Exceptions of catalogs and stores that do not answer for a while, and of commits that lost a race.
TRANSIENT_KINDS = (
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
TRANSIENT_WORDS = (
    "Connection refused",
    "Connection reset",
    "Found conflicting files",
    "Found conflicting deleted files",
    "Found new conflicting",
)


class IcebergOptions(ServerOptions):
    """The table, and how it is created."""

    table: str = Field(
        description="`catalog.schema.table`; the sink creates it with the query's columns when it is missing"
    )
    partition_by: Expressions | None = Field(
        None,
        description="the partitions of a table that the sink creates, as in SQL: `days(at), bucket(8, id)`",
    )


class IcebergSink(ServerSink):
    """Appends, merges by key in update mode, deletes included, replaces all rows in complete mode."""

    Options = IcebergOptions
    takes_operations: ClassVar[bool] = True

    options: IcebergOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self._mark = -1
        self._unsure = False
        """Whether the last commit failed in a way that leaves open whether it was done."""
        self._first = True

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE

    def describe(self) -> str:
        return f"iceberg table {self.options.table}"

    def check_query(self, target: Target) -> None:
        require_rows_by_key(target)
        ensure_format(target.spark, "iceberg", target.settings)

    def check_server(self, target: Target) -> None:
        if target.spark.catalog.tableExists(self.options.table):
            existing = target.spark.table(self.options.table).schema
            refuse_incompatible(existing, _widened(target, existing), where=self.describe())

    def check_reachable(self, target: Target) -> None:
        ensure_format(target.spark, "iceberg", target.settings)
        target.spark.catalog.tableExists(self.options.table)

    def prepare(self, target: Target) -> None:
        from pyspark.sql.types import StructType

        spark, name, schema = target.spark, self.options.table, stored_schema(target)
        if not spark.catalog.tableExists(name):
            create_table(spark, name, _ddl(spark, schema), self.options.partition_by)
        columns = {column.lower() for column in spark.table(name).columns}
        added = [field for field in schema if field.name.lower() not in columns]
        if added:
            spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({_ddl(spark, StructType(added))})")
        self._mark = self._read_mark(spark)

    def write(self, epoch: Epoch) -> int | None:
        if self._first:
            self._first = False
            if self._mark < 0 < epoch.number:
                LOG.warning(
                    "the query %s goes on with epoch %d, and no snapshot of %s is its own: if they were expired after the query "
                    "was killed in the middle of a commit, this epoch may come twice",
                    self.target.name,
                    epoch.number,
                    self.options.table,
                )
        with inserts_alone(self.describe()):
            return self.retry(lambda: self._commit(epoch))

    def transient(self, error: Exception) -> str | None:
        reason = transient(error)
        self._unsure = self._unsure or reason is not None
        return reason

    def _commit(self, epoch: Epoch) -> int:
        if self._unsure:
            self._mark = self._read_mark(epoch.frame.sparkSession)
            self._unsure = False
        if epoch.number <= self._mark:
            return 0
        properties = {QUERY: self.target.query, EPOCH: str(epoch.number)}
        frame = self._fitted(epoch.frame)
        if self.target.mode != "update" and self.target.operation is not None:
            frame = inserts_of(frame, OPERATION)
        if self.target.mode == "append" and self.target.stateful and frame.isEmpty():
            rows = 0  # a batch that only moved the watermark: one that comes again has no rows either
        elif self.target.mode == "update":
            rows = self._merge(frame, properties)
        else:
            rows = self._write(frame, properties)
        self._mark = epoch.number
        # Batches run in another Spark session; without this the user's one would keep the snapshot that it has read.
        self.target.spark.catalog.refreshTable(self.options.table)
        return rows

    def _write(self, frame: DataFrame, properties: Mapping[str, str]) -> int:
        from pyspark.sql import functions as F  # as PySpark's users have it

        watched, rows = counted(frame)
        writer = watched.writeTo(self.options.table)
        for name, value in properties.items():
            writer = writer.option(f"{IN_OPTIONS}{name}", value)
        if self.target.mode == "complete":
            writer.overwrite(F.lit(True))
        else:
            writer.append()
        return rows()

    def _merge(self, frame: DataFrame, properties: Mapping[str, str]) -> int:
        """Merge the last row of each key; Spark caches the rows, because a merge may read them twice."""
        spark, keys = frame.sparkSession, self.target.keys
        others = self._others(frame)
        own = frame.drop(*[column(name) for name in others])
        last = _opaque(last_of_each_key(own, keys)).persist()
        view = f"penstock_epoch_{uuid.uuid4().hex[:12]}"
        same = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys)
        try:
            rows = last.count()
            if not rows:
                return 0
            last.createOrReplaceTempView(view)
            with session_properties(spark, properties):
                changes = _changes(last.columns, others)
                spark.sql(f"MERGE INTO {self.options.table} AS t USING {view} AS s ON {same} {changes}")
        finally:
            spark.catalog.dropTempView(view)
            last.unpersist()
        return rows

    def _others(self, frame: DataFrame) -> list[str]:
        """The columns of the table that the query does not have: rows that are there keep what they have in them."""
        own = {name.lower() for name in stored_schema(self.target).names}
        return [name for name in frame.columns if name != OPERATION and name.lower() not in own]

    def _read_mark(self, spark: SparkSession) -> int:
        """The last epoch of this query among the snapshots that the table's current state is made of."""
        spark.catalog.refreshTable(
            self.options.table
        )  # another process may have written since this one looked
        query = self.target.query.replace("\\", "\\\\").replace("'", "\\'")
        row = spark.sql(
            f"SELECT max(CAST(s.summary['{EPOCH}'] AS BIGINT)) AS epoch FROM {self.options.table}.snapshots AS s "
            f"JOIN {self.options.table}.history AS h ON h.snapshot_id = s.snapshot_id "
            f"WHERE h.is_current_ancestor AND s.summary['{QUERY}'] = '{query}'"
        ).first()
        return -1 if row is None or row.epoch is None else int(row.epoch)

    def _fitted(self, frame: DataFrame) -> DataFrame:
        """The frame with the table's columns, and with the operation of each row; columns that the query does not
        have are NULL."""
        from pyspark.sql import functions as F  # as PySpark's users have it

        operation = self.target.operation
        names = {name.lower(): name for name in frame.columns if name != operation}
        return frame.select(
            *[
                (column(names[field.name.lower()]) if field.name.lower() in names else F.lit(None))
                .cast(field.dataType)
                .alias(field.name)
                for field in frame.sparkSession.table(self.options.table).schema
            ],
            *([] if operation is None else [column(operation).alias(OPERATION)]),
        )


def transient(error: Exception) -> str | None:
    """Say what an error means that goes away by itself; None when it does not, or is not Spark's."""
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return None
    for fault in reversed(faults(error)):
        if fault.kind.rpartition(".")[2] in TRANSIENT_KINDS or any(
            word in fault.message for word in TRANSIENT_WORDS
        ):
            return fault.message.splitlines()[0][:200] if fault.message else fault.kind
    return None


def create_table(spark: SparkSession, name: str, columns: str, partitions: str | None) -> None:
    """Create a table with columns in DDL, and its namespace."""
    namespace = name.rpartition(".")[0]
    if namespace.count("."):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg"
        + (f" PARTITIONED BY ({partitions})" if partitions else "")
    )


@contextlib.contextmanager
def session_properties(spark: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Give the snapshots of statements properties, in a session that runs nothing else meanwhile."""
    for name, value in properties.items():
        spark.conf.set(f"{IN_SESSION}{name}", value)
    try:
        yield
    finally:
        for name in properties:
            spark.conf.unset(f"{IN_SESSION}{name}")


def _changes(names: Sequence[str], others: Sequence[str]) -> str:
    """What a merge does with the rows of a source with these columns; the table has others, too."""
    own = [quoted(name) for name in names if name != OPERATION]
    update = f"UPDATE SET {', '.join(f't.{name} = s.{name}' for name in own)}"
    listed = ", ".join([*own, *map(quoted, others)])
    insert = (
        f"INSERT ({listed}) VALUES ({', '.join([*(f's.{name}' for name in own), *('NULL' for _ in others)])})"
    )
    if OPERATION not in names:
        return f"WHEN MATCHED THEN {update} WHEN NOT MATCHED THEN {insert}"
    is_delete = f"s.{OPERATION} <=> '{DELETE}'"
    return (
        f"WHEN MATCHED AND {is_delete} THEN DELETE WHEN MATCHED THEN {update} "
        f"WHEN NOT MATCHED AND NOT ({is_delete}) THEN {insert}"
    )


def _opaque(frame: DataFrame) -> DataFrame:
    """The rows of a frame without its plan: a merge refuses one in which rows are numbered."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

    spark = frame.sparkSession
    execution = frame._jdf.queryExecution()
    rows = spark._jsparkSession.internalCreateDataFrame(
        execution.toRdd(), execution.analyzed().schema(), False
    )
    return ClassicDataFrame(rows, spark)


def _widened(target: Target, existing: StructType) -> StructType:
    """The query's schema, with the table's type where every value fits into it."""
    from pyspark.sql.types import StringType, StructField, StructType

    jvm: Any = target.spark._jvm
    types = jvm.org.apache.spark.sql.types.DataType
    cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast
    columns = {field.name.lower(): field for field in existing}
    fields = []
    for field in stored_schema(target):
        old = columns.get(field.name.lower())
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
