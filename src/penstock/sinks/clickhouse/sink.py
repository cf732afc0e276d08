"""Rows in a ClickHouse table: exactly once where the table drops repeated inserts, which tables that the sink creates do.

Every insert carries a token made of query, epoch and chunk. The driver sends a small epoch in one insert. Spark's
tasks send a large one in chunks; a row's chunk follows from its key, or else from its values, so that a repeated
chunk has the same rows, however Spark has distributed them. Without a key the token says what is in the chunk, too:
when an epoch that comes again has other values, of `now()` or `rand()` for example, no row is lost, and some are
stored twice. One insert is one block: ClickHouse stores it as a whole or not at all, in each of the table's
partitions.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.data.operation import DELETE
from penstock.errors import ConfigError, DataError, PenstockError, suggest
from penstock.sinks.base import Epoch, Guarantee, Target
from penstock.sinks.clickhouse import client, table
from penstock.sinks.clickhouse.chunk import insert_settings, send_chunks
from penstock.sinks.clickhouse.client import ClickHouseClient
from penstock.sinks.clickhouse.column import check_columns, column_type, encode, quoted
from penstock.sinks.clickhouse.options import ClickHouseTableOptions
from penstock.sinks.clickhouse.table import VERSION, WINDOW, Table, full_name
from penstock.sinks.column import column
from penstock.sinks.epoch_rows import AT_ONCE_BYTES, EpochRows
from penstock.sinks.errors import ROW_REFUSED
from penstock.sinks.failed_row import INPUT, input_of
from penstock.sinks.last_by_key import last_of_each_key
from penstock.sinks.operation import inserts_alone, inserts_of, require_rows_by_key, stored_schema
from penstock.sinks.server import ServerSink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.config import Settings
    from penstock.sinks.refused import RefusedRows

MOST_CHUNKS = 1_000
CHECK_SETTINGS = {"async_insert": "0", "input_format_null_as_default": "0"}


class ClickHouseSink(ServerSink):
    """Inserts in append mode, inserts newer versions by key in update mode, deletes included, replaces all rows in
    complete mode."""

    Options = ClickHouseTableOptions
    takes_operations: ClassVar[bool] = True

    options: ClickHouseTableOptions

    def __init__(self, options: Mapping[str, Any], settings: Settings | None = None) -> None:
        super().__init__(options, settings)
        self._address = self.options.address()
        self._client = ClickHouseClient(self._address)
        self._guarantee = Guarantee.AT_LEAST_ONCE
        self._version: str | None = None
        """The column in which this sink counts the versions of rows."""
        self._counter = 0
        self._deleted: str | None = None
        """The column of the table that says that a row is gone."""
        self._left_out = 0
        """How many rows of the epoch are refused, and are not among those that are written."""
        self._without_null: tuple[str, ...] = ()
        """Columns that take no NULL, beside those of the key and the version."""

    @property
    def guarantee(self) -> Guarantee:
        return self._guarantee

    def describe(self) -> str:
        return f"clickhouse table {self.options.table} in {self._address.location}"

    def check_query(self, target: Target) -> None:
        require_rows_by_key(target)
        for field in stored_schema(target):
            column_type(field.dataType, name=field.name)
        self._check_version(target)

    def check_server(self, target: Target) -> None:
        existing = table.find_table(self._client, self.options.table)
        if existing is None:
            self._refuse_missing()
        else:
            self._check_table(target, existing)
        exact = existing is None or target.mode != "append" or existing.window > 0
        self._guarantee = Guarantee.EXACTLY_ONCE if exact else Guarantee.AT_LEAST_ONCE
        self.guarantee_reason = _guarantee_reason(target.mode, existing)

    def check_reachable(self, target: Target) -> None:
        if table.find_table(self._client, self.options.table) is None:
            self._refuse_missing()

    def _refuse_missing(self) -> None:
        if not self.options.create:
            raise DataError(
                f"there is no table {self.options.table}",
                code="SINK_TABLE_MISSING",
                where=self._address.location,
                hint='create it, or let penstock do it with .option("create", True)',
            )

    def prepare(self, target: Target) -> None:
        options = self.options
        existing = table.find_table(self._client, options.table)
        if existing is None:
            table.create_table(
                self._client,
                options.table,
                stored_schema(target),
                keys=target.keys,
                upserts=target.mode == "update",
                deletes=target.operation is not None and options.append_only_mode,
                version=self._query_version(target),
                order_by=options.order_by,
                partition_by=options.partition_by,
            )
        else:
            missing = self._missing_columns(target, existing)
            table.add_columns(self._client, options.table, [target.schema[name] for name in missing])
        self.check_server(target)
        if target.mode == "update":
            created = table.find_table(self._client, options.table)
            self._deleted = None if created is None else created.deleted
            self._without_null = tuple(
                field.name
                for field in (() if created is None else created.columns)
                if field.name in target.schema.names
                and field.name not in (*target.keys, self._query_version(target))
                and "Nullable(" not in field.kind
            )
            if not self._query_version(target):
                self._begin_versions(target)

    def write(self, epoch: Epoch) -> int | None:
        refused = self.target.refused
        self._left_out = 0
        if refused is None:
            return self._write(epoch.frame, epoch.number)
        try:
            frame = self._without(epoch.frame, refused) if refused.count() else epoch.frame
            return self._write(frame, epoch.number)
        except DataError as error:
            if error.code != ROW_REFUSED or not self._refuse(epoch.frame, refused):
                raise
        refused.keep()
        return self._write(self._without(epoch.frame, refused), epoch.number)

    def _write(self, rows: DataFrame, number: int) -> int:
        target, token = self.target, f"{self.target.query}-{number}"
        if target.operation is not None and target.mode == "update" and self._deleted is None:
            with _persisted(rows) as (changes, _):
                return self._insert_and_delete(changes, target, token)
        with inserts_alone(self.describe()), _persisted(self._encoded(target, rows)) as (frame, count):
            if target.mode == "complete":
                self._replace(frame, count, target)
            elif self._deleted is not None and self._without_null and target.operation is not None:
                self._insert_with_gone(frame, count, self._deleted, token)
            elif count:
                self._insert(frame, count, self.options.table, token)
        return count

    def _counting(self, frame: DataFrame) -> DataFrame:
        """The rows that count, each with what a dead letter has of it: of a key of which only the last row is
        written, only that."""
        named = frame.withColumn(INPUT, input_of(frame.columns))
        takes_last = self.target.mode == "update" and not self._query_version(self.target)
        return last_of_each_key(named, self.target.keys) if takes_last else named

    def _without(self, frame: DataFrame, refused: RefusedRows) -> DataFrame:
        """The rows without those that are refused, and all that are the same."""
        from pyspark.sql import functions as F  # as PySpark's users have it

        # A chunk without refused rows has the same number as before, so that it is dropped when it is there already.
        self._left_out = refused.count()
        gone = frame.sparkSession.createDataFrame([(row,) for row in refused.inputs()], f"{INPUT} STRING")
        return self._counting(frame).join(F.broadcast(gone), INPUT, "left_anti").drop(INPUT)

    def _refuse(self, frame: DataFrame, refused: RefusedRows) -> int:
        """Find the rows that the server refuses, and return how many they are.

        They are given to a table beside this one which has the same columns and constraints, and stores nothing.
        """
        target = self.target
        named = self._without(frame, refused) if refused.count() else frame
        named = self._counting(named)
        if target.operation is not None and target.mode == "update":
            # A delete is not looked at: it may have no values but its key.
            named = named.where(~column(target.operation).eqNullSafe(DELETE)).drop(column(target.operation))
            target = replace(target, operation=None)
        stage = f"{self.options.table}_penstock_{target.query.replace('-', '')[:12]}_check"
        self._execute(f"DROP TABLE IF EXISTS {full_name(stage)} SYNC")
        before = refused.count()
        try:
            self._execute(
                f"CREATE TABLE IF NOT EXISTS {full_name(stage)} AS {full_name(self.options.table)} ENGINE = Null"
            )
            with EpochRows(self._encoded(target, named)) as rows:
                for batch in rows.batches():
                    self._refuse_of(batch, stage, refused)
        finally:
            self._execute(f"DROP TABLE IF EXISTS {full_name(stage)} SYNC")
        return refused.count() - before

    def _refuse_of(self, batch: pa.RecordBatch, stage: str, refused: RefusedRows) -> None:
        import pyarrow as pa

        inputs, sent = batch.column(INPUT), pa.table(batch.drop_columns([INPUT]))
        into = f"{full_name(stage)} ({', '.join(map(quoted, sent.column_names))})"
        parts = [(0, batch.num_rows)]
        while parts:
            begin, end = parts.pop()
            rows = sent.slice(begin, end - begin)
            try:
                self.retry(partial(self._client.insert, into, rows, CHECK_SETTINGS))
            except DataError as error:
                if error.code != ROW_REFUSED:
                    raise
                if end - begin == 1:
                    refused.add(error.message, inputs[begin].as_py())
                else:
                    middle = begin + (end - begin) // 2
                    parts += [(middle, end), (begin, middle)]

    def close(self) -> None:
        self._client.close()

    def transient(self, error: Exception) -> str | None:
        return client.transient(error)

    def translate(self, error: Exception) -> PenstockError | None:
        return client.translate(error, where=self.describe())

    def _encoded(self, target: Target, frame: DataFrame) -> DataFrame:
        """The rows as they are sent; in update mode the last of each key, unless the query has the versions of rows."""
        from pyspark.sql import functions as F  # as PySpark's users have it

        operation = target.operation
        if target.mode != "update":
            return encode(inserts_of(frame, operation))
        if not self._query_version(target):
            frame = last_of_each_key(frame, target.keys)
        if operation is not None:
            is_delete = column(operation).eqNullSafe(DELETE)
            frame = frame.withColumn(operation, is_delete.cast("tinyint"))
            if self._deleted is not None:
                frame = frame.withColumnRenamed(operation, self._deleted)
        last = encode(frame)
        if self._version is None:
            return last
        self._counter += 1
        return last.withColumn(self._version, F.lit(self._counter).cast("bigint"))

    def _insert(self, frame: DataFrame, rows: int, name: str, token: str) -> None:
        chunks = min(math.ceil((rows + self._left_out) / self.options.batch_rows), MOST_CHUNKS)
        into = f"{full_name(name)} ({', '.join(map(quoted, frame.columns))})"
        if chunks == 1 and _bytes(frame) <= AT_ONCE_BYTES:
            arrow, settings = frame.toArrow(), insert_settings(token, chunks, 0)
            self.retry(lambda: self._client.insert(into, arrow, settings))
            return
        by = self.target.keys or None
        pending = frozenset(range(chunks))

        def send() -> None:
            nonlocal pending
            failures = send_chunks(frame, self._address, into, token, chunks=chunks, pending=pending, by=by)
            pending = frozenset(failures)
            for failure in sorted(failures.values(), key=lambda failure: failure.transient):
                raise failure

        self.retry(send)

    def _insert_with_gone(self, frame: DataFrame, rows: int, deleted: str, token: str) -> None:
        """Insert rows, and those that are gone by themselves: they may have NULL where the table takes none, and get
        its defaults there."""
        from pyspark.sql import functions as F

        is_gone = column(deleted) == 1
        gone = frame.where(is_gone)
        lacking = [F.count_if(column(name).isNull()) for name in self._without_null]
        row = gone.agg(F.count(F.lit(1)), *lacking).first()
        assert row is not None
        count, *nulls = row
        if count < rows:
            self._insert(frame.where(~is_gone), rows - count, self.options.table, token)
        if count:
            absent = [name for name, number in zip(self._without_null, nulls, strict=True) if number]
            self._insert(
                gone.drop(*[column(name) for name in absent]), count, self.options.table, f"{token}-gone"
            )

    def _insert_and_delete(self, changes: DataFrame, target: Target, token: str) -> int:
        """Insert the rows that stay, and delete those whose last operation says so, in a table without a column for it."""
        keys, operation = list(target.keys), str(target.operation)
        is_delete = column(operation).eqNullSafe(DELETE)
        last = last_of_each_key(changes, keys)
        gone = last.where(is_delete).select(*[column(key) for key in keys])
        with _persisted(gone) as (gone, deletes):
            versioned = self._query_version(target) is not None
            stay = (changes if versioned else last).where(~is_delete).drop(column(operation))
            if versioned and deletes:
                stay = stay.join(gone, keys, "left_anti").select(*[column(name) for name in stay.columns])
            with _persisted(self._encoded(replace(target, operation=None), stay)) as (frame, rows):
                if rows:
                    self._insert(frame, rows, self.options.table, token)
            if deletes:
                self._delete(encode(gone), deletes, target)
        return rows + deletes

    def _delete(self, keys: DataFrame, rows: int, target: Target) -> None:
        """Delete the rows of these keys in one statement, which finds them in a table beside this one."""
        listed = ", ".join(map(quoted, keys.columns))
        stage = f"{self.options.table}_penstock_{target.query.replace('-', '')[:12]}"
        name, stage_name = full_name(self.options.table), full_name(stage)
        self._execute(f"DROP TABLE IF EXISTS {stage_name} SYNC")
        try:
            self._execute(
                f"CREATE TABLE IF NOT EXISTS {stage_name} ENGINE = MergeTree ORDER BY tuple() "
                f"AS SELECT {listed} FROM {name} WHERE false"
            )
            self._insert(keys, rows, stage, uuid.uuid4().hex)
            self._execute(f"DELETE FROM {name} WHERE ({listed}) IN (SELECT {listed} FROM {stage_name})")
        finally:
            self._execute(f"DROP TABLE IF EXISTS {stage_name} SYNC")

    def _replace(self, frame: DataFrame, rows: int, target: Target) -> None:
        """Store all rows in a table beside this one, and replace the partition of this one in one step."""
        stage = f"{self.options.table}_penstock_{target.query.replace('-', '')[:12]}"
        name, stage_name = full_name(self.options.table), full_name(stage)
        self._execute(f"DROP TABLE IF EXISTS {stage_name} SYNC")
        if not rows:
            self._execute(f"ALTER TABLE {name} DROP PARTITION tuple()")
            return
        try:
            self._execute(f"CREATE TABLE IF NOT EXISTS {stage_name} AS {name}")
            self._insert(frame, rows, stage, uuid.uuid4().hex)
            self._execute(f"ALTER TABLE {name} REPLACE PARTITION tuple() FROM {stage_name}")
        finally:
            self._execute(f"DROP TABLE IF EXISTS {stage_name} SYNC")

    def _execute(self, statement: str) -> None:
        self.retry(lambda: self._client.execute(statement))

    def _check_version(self, target: Target) -> None:
        version = self.options.version
        if version is None:
            return
        if target.mode != "update":
            raise ConfigError(
                f"version belongs to output mode update, and the mode is {target.mode}",
                code="STREAM_OPTION_VALUE",
                hint="in the other modes no row replaces another",
            )
        if version not in target.schema.names:
            raise ConfigError(
                f"the query has no column '{version}' for the version of rows",
                code="STREAM_OPTION_VALUE",
                hint=suggest(version, target.schema.names, what="column"),
            )

    def _query_version(self, target: Target) -> str | None:
        """The column of the query that says which row of a key is newest."""
        if self.options.version is not None:
            return self.options.version
        return VERSION if VERSION in target.schema.names else None

    def _missing_columns(self, target: Target, existing: Table) -> list[str]:
        return check_columns(
            stored_schema(target), existing.columns, where=self.describe(), adds=self.options.create
        )

    def _check_table(self, target: Target, existing: Table) -> None:
        self._missing_columns(target, existing)
        where = self._address.location
        if target.mode == "update":
            table.check_upsert(existing, target.keys, columns=target.schema.names, where=where)
            version = self.options.version
            if version is not None and existing.version != version:
                raise ConfigError(
                    f"the table {existing.name} takes the version of rows from "
                    f"{f'{existing.version!r}' if existing.version else 'no column'}, not from '{version}'",
                    code="STREAM_OPTION_VALUE",
                    where=where,
                    hint="leave the option version out, or write to another table",
                )
        if target.mode == "complete" and (not existing.merges or existing.partitioned):
            raise ConfigError(
                f"all rows of the table {existing.name} cannot be replaced in one step: "
                + ("it is partitioned" if existing.partitioned else f"its engine is {existing.engine}"),
                code="STREAM_OUTPUT_MODE",
                where=where,
                hint="use update with a key, or a MergeTree table without PARTITION BY",
            )

    def _begin_versions(self, target: Target) -> None:
        """Count on from the newest version in the table, whoever wrote it."""
        existing = table.find_table(self._client, self.options.table)
        self._version = existing.version if existing is not None else None
        if existing is None or self._version is None:
            return
        column = existing.column(self._version)
        if self._version in target.schema.names or (column is not None and column.default):
            self._version = None
            return
        self._counter = table.newest_version(self._client, self.options.table, self._version)


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[tuple[DataFrame, int]]:
    """The rows, which Spark computes once and caches, and their number."""
    cached = frame.persist()
    try:
        yield cached, cached.count()
    finally:
        cached.unpersist()


def _bytes(frame: DataFrame) -> int:
    """How large the rows of a cached frame are, as Spark measured it."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def _guarantee_reason(mode: str, existing: Table | None) -> str:
    """Why rows come once or more often, in a few words."""
    if mode == "update":
        return "a repeated row replaces itself: read with FINAL"
    if mode == "complete":
        return "a repeated result replaces itself"
    if existing is None or existing.window:
        window = WINDOW if existing is None else existing.window
        return f"the table remembers its last {window} inserts, and drops those that come again"
    return f"the engine {existing.engine} does not drop inserts that come again"
