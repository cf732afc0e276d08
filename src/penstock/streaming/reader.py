"""Where streams come from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from penstock.errors import ConfigError
from penstock.sources import kafka
from penstock.spark.streaming import frames
from penstock.streaming.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.streaming.queries import Queries

T = TypeVar("T")


class Attempt(Protocol):
    """Does something with Spark: a connector that is missing is installed, errors come in penstock's words."""

    def __call__(self, action: Callable[[], T], /) -> T:
        """Return what the action returns."""


class StreamReader:
    """Reads files, topics and tables as streams; `options` are Spark's own."""

    def __init__(self, spark: SparkSession, queries: Queries, attempt: Attempt) -> None:
        self._spark = spark
        self._queries = queries
        self._attempt = attempt
        self._format: str | None = None
        self._options: dict[str, Any] = {}
        self._schema: Any = None

    def parquet(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """Parquet files of a folder, those that come later too."""
        return self._files("parquet", path, schema, options)

    def csv(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """CSV files with a header; types are inferred once, unless a schema says otherwise."""
        return self._files("csv", path, schema, options)

    def json(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """Files with a JSON object per line."""
        return self._files("json", path, schema, options)

    def orc(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """ORC files."""
        return self._files("orc", path, schema, options)

    def avro(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """Avro files; the connector is installed when it is not there yet."""
        return self._files("avro", path, schema, options)

    def kafka(
        self,
        *,
        topic: str,
        bootstrap_servers: str | None = None,
        schema: Any = None,
        starting_offsets: str = "latest",
        group: str | None = None,
        **options: Any,
    ) -> Stream:
        """Records of one or more topics; with a schema, the columns of their JSON values beside Kafka's own.

        With a `group`, that consumer group is told after every batch how far the query has read, for tools that show lag.
        """
        given = kafka.options(
            self._spark,
            topic=topic,
            bootstrap_servers=bootstrap_servers,
            starting_offsets=starting_offsets,
            group=group,
            options=options,
        )
        frame = self._attempt(lambda: self._spark.readStream.format("kafka").options(**given).load())
        if schema is not None:
            frame = self._attempt(lambda: kafka.decoded(frame, schema))
        return Stream(self._queries, frame)

    def iceberg(self, table: str, **options: Any) -> Stream:
        """The rows that are appended to an Iceberg table, beginning with those that are there."""
        return self._stream(lambda: self._spark.readStream.format("iceberg").options(**options).load(table))

    def table(self, name: str, **options: Any) -> Stream:
        """The rows of a table that can be read as a stream."""
        return self._stream(lambda: self._spark.readStream.options(**options).table(name))

    def rate(self, *, rows_per_second: int = 1, **options: Any) -> Stream:
        """Rows that are made up, so many per second: a timestamp and a value."""
        return self._stream(
            lambda: (
                self._spark.readStream.format("rate").options(rowsPerSecond=rows_per_second, **options).load()
            )
        )

    def format(self, name: str) -> Self:
        """Use any of Spark's sources by name."""
        self._format = name
        return self

    def option(self, name: str, value: Any) -> Self:
        """Set an option of the source."""
        self._options[name] = value
        return self

    def options(self, **options: Any) -> Self:
        """Set several options of the source."""
        self._options.update(options)
        return self

    def schema(self, schema: Any) -> Self:
        """Say which columns the source has."""
        self._schema = schema
        return self

    def load(self, path: str | os.PathLike[str] | None = None) -> Stream:
        """Read the source that `format` named."""
        if self._format is None:
            raise ConfigError(
                "load does not know the format of the source",
                code="STREAM_FORMAT",
                hint='name it: read_stream.format("parquet").load(path)',
            )
        if path is not None and self._format in ("parquet", "csv", "json", "orc", "avro", "text"):
            return self._files(self._format, path, self._schema, self._options)
        reader = self._spark.readStream.format(self._format).options(**self._options)
        if self._schema is not None:
            reader = reader.schema(self._schema)
        return self._stream(lambda: reader.load() if path is None else reader.load(os.fspath(path)))

    def _files(self, form: str, path: str | os.PathLike[str], schema: Any, options: dict[str, Any]) -> Stream:
        return self._stream(
            lambda: frames.of_files(self._spark, form, os.fspath(path), schema=schema, options=options)
        )

    def _stream(self, action: Callable[[], DataFrame]) -> Stream:
        return Stream(self._queries, self._attempt(action))
