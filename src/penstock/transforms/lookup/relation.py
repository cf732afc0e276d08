"""A look-up as a table: all of its rows, read anew when they are older than the time for which answers are good."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, DataError, SqlError, suggest
from penstock.sinks.column import column
from penstock.sources.postgres.address import completed
from penstock.spark.errors import translate
from penstock.sql.files import extension
from penstock.transforms.lookup.options import LookupOptions
from penstock.transforms.postgres_table import PostgresTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.config import Settings

FORMATS = {".tsv": "csv", ".jsonl": "json", ".ndjson": "json", ".pq": "parquet"}


class LookupRelation:
    """What a `sql` node joins by the name of the look-up. Called on the driver, from one thread at a time."""

    def __init__(
        self,
        options: LookupOptions,
        settings: Settings,
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if options.backend == "http":
            raise ConfigError(
                f"the look-up {name} asks an HTTP service, whose rows cannot be listed: no query can join it",
                code="LOOKUP_NO_TABLE",
                hint="give it `from: NODE`, so that it adds its columns to the rows of that node",
            )
        self._options, self._settings, self._name, self._clock = options, settings, name, clock
        self._frame: DataFrame | None = None
        self._read_at = 0.0

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows for an epoch, with the columns of the key and those that are chosen; they stay the same until the
        next call."""
        now = self._clock()
        if self._frame is not None and now - self._read_at < self._options.ttl / 1000:
            return self._frame
        fresh = self._chosen(self._read(spark)).persist()
        self._unique(fresh)
        self.close()
        self._frame, self._read_at = fresh, now
        return fresh

    def close(self) -> None:
        """Let Spark forget the rows."""
        if self._frame is not None:
            self._frame.unpersist()
            self._frame = None

    def _read(self, spark: SparkSession) -> DataFrame:
        options = self._options
        if options.backend == "postgres":
            return PostgresTable(
                postgres_url(options, self._settings), options.table, query=options.query
            ).frame(spark)
        from pyspark.errors import PySparkException

        from penstock.spark.reader import read

        assert options.path is not None
        form = options.format or file_format(options.path)
        try:
            return read(spark, form, options.path, schema=ddl(options.schema_) if options.schema_ else None)
        except PySparkException as error:
            raise translate(error, spark=spark) from None

    def _chosen(self, rows: DataFrame) -> DataFrame:
        if not self._options.columns:
            return rows
        keys = [column(existing(name, rows.columns, self._name)) for name in self._options.on.values()]
        values = [
            column(existing(name, rows.columns, self._name)).alias(new)
            for name, new in self._options.columns.items()
        ]
        return rows.select(
            *keys,
            *[
                value
                for value, new in zip(values, self._options.columns, strict=True)
                if new not in self._options.on.values()
            ],
        )

    def _unique(self, rows: DataFrame) -> None:
        """Refuse rows of which several have one key, where a key is given: a row that is looked up has one answer."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as F  # as PySpark's users have it

        keys = [column(existing(name, rows.columns, self._name)) for name in self._options.on.values()]
        try:
            if not keys:
                rows.count()
                return
            some = (
                rows.groupBy(*keys)
                .agg(F.count(F.lit(1)).alias("penstock_rows"))
                .where("penstock_rows > 1")
                .head()
            )
        except PySparkException as error:
            rows.unpersist()
            raise translate(error, spark=rows.sparkSession) from None
        if some is not None:
            rows.unpersist()
            key = ", ".join(f"{name} = {value!r}" for name, value in list(some.asDict().items())[:-1])
            raise DataError(
                f"{some['penstock_rows']} rows of the look-up {self._name} have the key {key}",
                code="LOOKUP_KEY",
                hint="a key has one row: choose other columns with `on`, or select one row of each in a `query`",
            )


def existing(name: str, names: list[str], lookup: str) -> str:
    """The name of a column as it is written there; SqlError when there is none."""
    matches = [column_name for column_name in names if column_name.lower() == name.lower()]
    if not matches:
        raise SqlError(
            f"the look-up {lookup} has no column '{name}'",
            code="SQL_UNKNOWN_COLUMN",
            hint=suggest(name, names, what="column"),
        )
    return name if name in matches else matches[0]


def postgres_url(options: LookupOptions, settings: Settings) -> str:
    """The address of the database."""
    return completed(options.url, settings, what="a look-up in postgres", code="TRANSFORM_OPTION_MISSING")


def file_format(path: str) -> str:
    """The format that the ending of a path says."""
    end = extension(path)
    form = FORMATS.get(end, end.removeprefix("."))
    if form in ("csv", "json", "parquet", "orc", "avro"):
        return form
    raise ConfigError(
        f"the path of a look-up does not say its format: {path}",
        code="TRANSFORM_OPTION_MISSING",
        hint="add format: parquet (or csv, json, orc, avro)",
    )


def ddl(types: dict[str, str]) -> str:
    """Columns with their types, as DDL."""
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in types.items())
