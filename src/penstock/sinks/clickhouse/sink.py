"""Rows in a ClickHouse table: exactly once where the table drops inserts that come again, which ours do.

Every insert carries a token made of query, epoch and chunk. A small epoch is one insert, sent by the driver. A large one is sent by
Spark's tasks in chunks; a row's chunk follows from its values, so that a chunk that comes again has the same rows, however
Spark has dealt them out this time. One insert is one block: it is stored as a whole or not at all, in each of the table's partitions.
"""

from __future__ import annotations

import http.client
import math
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from penstock import config
from penstock.data.duration import milliseconds
from penstock.errors import ConfigError, DataError, PenstockError, suggest
from penstock.sinks.base import Epoch, Guarantee, Sink, Target, require_key
from penstock.sinks.clickhouse import table as tables
from penstock.sinks.clickhouse.chunk import Failed, send_chunks, settings_of
from penstock.sinks.clickhouse.column import declared, quoted, refuse_misfits, sent
from penstock.sinks.clickhouse.http import Address, Client, Refusal
from penstock.sinks.clickhouse.table import VERSION, WINDOW, Table, full_name
from penstock.sinks.errors import refused, row_refused
from penstock.sinks.held_rows import AT_ONCE_BYTES
from penstock.sinks.last_by_key import last_of_each_key
from penstock.sinks.retry import RETRY_FOR, RetryPolicy, retry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

BATCH_ROWS = 100_000
MOST_CHUNKS = 1_000
TIMEOUT = "5 minutes"


class ClickHouseSink(Sink):
    """Inserts in append mode, inserts newer versions by key in update mode, replaces all rows in complete mode."""

    taken: ClassVar[tuple[str, ...]] = (
        "url",
        "table",
        "user",
        "password",
        "database",
        "settings",
        "version",
        "order_by",
        "partition_by",
        "create",
        "batch_rows",
        "timeout",
        "retry_for",
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.only_known()
        self.table = str(self.required("table"))
        url = self.options.get("url") or config.load().clickhouse_url
        if not url:
            raise ConfigError(
                "the clickhouse sink needs the address of a server",
                code="STREAM_OPTION_MISSING",
                hint='add .option("url", "http://user:password@host:8123/database"), or set PENSTOCK_CLICKHOUSE_URL',
            )
        seconds = milliseconds(self.options.get("timeout", TIMEOUT), what="timeout") / 1000
        self._address = replace(Address.of(str(url)).with_options(self.options), seconds=seconds)
        self._client = Client(self._address)
        self._create = str(self.options.get("create", True)).lower() == "true"
        self._batch_rows = self.positive("batch_rows", BATCH_ROWS)
        self._policy = RetryPolicy.of(self.options.get("retry_for", RETRY_FOR))
        self._target: Target | None = None
        self._guarantee = Guarantee.AT_LEAST_ONCE
        self._version: str | None = None
        """The column in which this sink counts the versions of rows."""
        self._counter = 0

    @property
    def guarantee(self) -> Guarantee:
        return self._guarantee

    def describe(self) -> str:
        return f"clickhouse table {self.table} in {self._address.place}"

    def check(self, target: Target) -> None:
        self._status = target.status
        require_key(target)
        for field in target.schema:
            declared(field.dataType, name=field.name)
        self._check_version(target)
        self._at_start(lambda: self._checked(target))

    def open(self, target: Target) -> None:
        self._target, self._status = target, target.status
        self._at_start(lambda: self._prepare(target))

    def write(self, epoch: Epoch) -> int | None:
        target = self._opened()
        with _kept(self._rows(target, epoch.frame)) as (frame, rows):
            if target.mode == "complete":
                self._replace(frame, rows, target)
            elif rows:
                self._insert(frame, rows, self.table, f"{target.query}-{epoch.number}")
        return rows

    def close(self) -> None:
        self._client.close()

    def _rows(self, target: Target, frame: DataFrame) -> DataFrame:
        """The rows as they are sent; in update mode the last of each key, unless the query itself says which one is newest."""
        from pyspark.sql import functions as F  # as PySpark's users have it

        if target.mode != "update" or self._query_version(target):
            return sent(frame)
        last = sent(last_of_each_key(frame, target.keys))
        if self._version is None:
            return last
        self._counter += 1
        return last.withColumn(self._version, F.lit(self._counter).cast("bigint"))

    def _insert(self, frame: DataFrame, rows: int, table: str, token: str) -> None:
        chunks = min(math.ceil(rows / self._batch_rows), MOST_CHUNKS)
        into = f"{full_name(table)} ({', '.join(map(quoted, frame.columns))})"
        if chunks == 1 and _bytes(frame) <= AT_ONCE_BYTES:
            table_of_rows, settings = frame.toArrow(), settings_of(token, chunks, 0)
            self._retry(lambda: self._client.insert(into, table_of_rows, settings))
            return
        target = self._opened()
        by = target.keys if target.mode == "update" and not self._query_version(target) else None
        waiting = frozenset(range(chunks))

        def send() -> None:
            nonlocal waiting
            failed = send_chunks(frame, self._address, into, token, chunks=chunks, waiting=waiting, by=by)
            waiting = frozenset(failed)
            for each in sorted(failed.values(), key=lambda each: each.passes):
                raise each

        self._retry(send)

    def _replace(self, frame: DataFrame, rows: int, target: Target) -> None:
        """Store all rows aside, and put them in the place of those that are there in one step."""
        stage = f"{self.table}_penstock_{target.query.replace('-', '')[:12]}"
        name, aside = full_name(self.table), full_name(stage)
        self._retry(lambda: self._client.execute(f"DROP TABLE IF EXISTS {aside} SYNC"))
        if not rows:
            self._retry(lambda: self._client.execute(f"ALTER TABLE {name} DROP PARTITION tuple()"))
            return
        try:
            self._retry(lambda: self._client.execute(f"CREATE TABLE IF NOT EXISTS {aside} AS {name}"))
            self._insert(frame, rows, stage, uuid.uuid4().hex)
            self._retry(
                lambda: self._client.execute(f"ALTER TABLE {name} REPLACE PARTITION tuple() FROM {aside}")
            )
        finally:
            self._retry(lambda: self._client.execute(f"DROP TABLE IF EXISTS {aside} SYNC"))

    def _check_version(self, target: Target) -> None:
        given = self.options.get("version")
        if given is None:
            return
        if target.mode != "update":
            raise ConfigError(
                f"version belongs to output mode update, and the mode is {target.mode}",
                code="STREAM_OPTION_VALUE",
                hint="in the other modes no row replaces another",
            )
        if given not in target.schema.names:
            raise ConfigError(
                f"the query has no column '{given}' for the version of rows",
                code="STREAM_OPTION_VALUE",
                hint=suggest(str(given), target.schema.names, what="column"),
            )

    def _query_version(self, target: Target) -> str | None:
        """The column of the query that says which row of a key is newer."""
        given = self.options.get("version")
        return str(given) if given is not None else VERSION if VERSION in target.schema.names else None

    def _checked(self, target: Target) -> None:
        there = tables.found(self._client, self.table)
        if there is None:
            if not self._create:
                raise DataError(
                    f"there is no table {self.table}",
                    code="SINK_TABLE_MISSING",
                    where=self._address.place,
                    hint='create it, or let penstock do it with .option("create", True)',
                )
            self._guarantee = Guarantee.EXACTLY_ONCE
            self.remark = _promise(target.mode, None)
            return
        refuse_misfits(target.schema, there.columns, where=self.describe(), adds=self._create)
        if target.mode == "update":
            tables.refuse_upsert(there, target.keys, target.schema.names)
            self._refuse_other_version(target, there)
        if target.mode == "complete" and (not there.merges or there.partitioned):
            raise ConfigError(
                f"all rows of the table {self.table} cannot be replaced in one step: "
                + ("it is partitioned" if there.partitioned else f"its engine is {there.engine}"),
                code="STREAM_OUTPUT_MODE",
                where=self._address.place,
                hint="use update with a key, or a MergeTree table without PARTITION BY",
            )
        exact = target.mode != "append" or there.window > 0
        self._guarantee = Guarantee.EXACTLY_ONCE if exact else Guarantee.AT_LEAST_ONCE
        self.remark = _promise(target.mode, there)

    def _refuse_other_version(self, target: Target, there: Table) -> None:
        given = self.options.get("version")
        if given is not None and there.version != given:
            raise ConfigError(
                f"the table {self.table} takes the version of rows from "
                f"{f'{there.version!r}' if there.version else 'no column'}, not from '{given}'",
                code="STREAM_OPTION_VALUE",
                where=self._address.place,
                hint="leave the option version out, or write to another table",
            )

    def _prepare(self, target: Target) -> None:
        there = tables.found(self._client, self.table)
        if there is None:
            self._client.execute(self._create_statement(target))
        else:
            for name in refuse_misfits(
                target.schema, there.columns, where=self.describe(), adds=self._create
            ):
                kind = declared(target.schema[name].dataType, name=name)
                self._client.execute(
                    f"ALTER TABLE {full_name(self.table)} ADD COLUMN IF NOT EXISTS {quoted(name)} {kind}"
                )
        self._checked(target)
        if target.mode == "update" and not self._query_version(target):
            self._count_from(tables.found(self._client, self.table), target)

    def _count_from(self, there: Table | None, target: Target) -> None:
        """Go on after the newest version in the table, whoever wrote it."""
        self._version = there.version if there is not None else None
        if there is None or self._version is None:
            return
        column = there.column(self._version)
        if self._version in target.schema.names or (column is not None and column.default):
            self._version = None
            return
        rows = self._client.rows(f"SELECT max({quoted(self._version)}) AS last FROM {full_name(self.table)}")
        self._counter = int(rows[0]["last"] or 0)

    def _create_statement(self, target: Target) -> str:
        version = self._query_version(target)
        columns = [
            f"{quoted(field.name)} "
            + declared(
                field.dataType,
                name=field.name,
                nullable=field.name != version and (field.name not in target.keys or field.nullable),
            )
            for field in target.schema
        ]
        engine, order = "MergeTree", self.options.get("order_by") or ", ".join(map(quoted, target.keys))
        if target.mode == "update":
            engine, order = (
                f"ReplacingMergeTree({quoted(version or VERSION)})",
                ", ".join(map(quoted, target.keys)),
            )
            if version is None:
                columns.append(f"{quoted(VERSION)} UInt64")
        parts = self.options.get("partition_by")
        return (
            f"CREATE TABLE IF NOT EXISTS {full_name(self.table)} ({', '.join(columns)}) ENGINE = {engine}"
            + (f" PARTITION BY {parts if isinstance(parts, str) else tuple(parts)}" if parts else "")
            + f" ORDER BY ({order or 'tuple()'})"
            + f" SETTINGS non_replicated_deduplication_window = {WINDOW}"
            + (", allow_nullable_key = 1" if order else "")
        )

    def _at_start(self, action: Callable[[], T]) -> T:
        policy = self._policy.at_start()
        try:
            return self._guarded(action, policy)
        except BaseException:
            self.close()  # a query that does not start has nobody who would
            raise

    def _retry(self, action: Callable[[], T]) -> T:
        return self._guarded(action, self._policy)

    def _guarded(self, action: Callable[[], T], policy: RetryPolicy) -> T:
        try:
            return retry(
                action,
                status=self._status,
                description=self.describe(),
                policy=policy,
                transient=self._passing,
            )
        except (Refusal, Failed, OSError, http.client.HTTPException) as error:
            raise self._told(error) from error

    def _passing(self, error: Exception) -> str | None:
        """What an error means that goes away by itself; the connection is not used again."""
        if not isinstance(error, Refusal | Failed | OSError | http.client.HTTPException):
            return None
        self._client.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            return None
        if isinstance(error, Refusal | Failed) and not error.passes:
            return None
        return (str(error) or type(error).__name__).splitlines()[0][:200]

    def _told(self, error: Exception) -> PenstockError:
        text = str(error).strip()
        if isinstance(error, Refusal | Failed) and error.of_rows:
            return row_refused(
                "ClickHouse",
                text,
                where=self.describe(),
                hint="correct the query or the table, and start the query again: it goes on with the batch that was refused",
            )
        return refused("ClickHouse", text, where=self.describe())

    def _opened(self) -> Target:
        assert self._target is not None, "the sink was not opened"
        return self._target


@contextmanager
def _kept(frame: DataFrame) -> Iterator[tuple[DataFrame, int]]:
    """The rows computed once, kept by Spark for a while, and their number."""
    kept = frame.persist()
    try:
        yield kept, kept.count()
    finally:
        kept.unpersist()


def _bytes(frame: DataFrame) -> int:
    """How large the rows of a frame that is kept are, as Spark measured it."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def _promise(mode: str, there: Table | None) -> str:
    """Why rows come once or more often, in a few words."""
    if mode == "update":
        return "a repeated row replaces itself: read with FINAL"
    if mode == "complete":
        return "a repeated result replaces itself"
    if there is None or there.window:
        window = WINDOW if there is None else there.window
        return f"the table remembers its last {window} inserts, and drops those that come again"
    return f"the engine {there.engine} does not drop inserts that come again"
