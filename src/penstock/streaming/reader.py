"""Where streams come from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from penstock.errors import ConfigError
from penstock.options import option_fields
from penstock.plugin import SourcePlugin
from penstock.sources import source_class, source_of
from penstock.sources.base import SourceContext
from penstock.sources.spark import SparkSource
from penstock.streaming.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sources.base import Source
    from penstock.streaming.queries import Queries

T = TypeVar("T")


class Attempt(Protocol):
    """Does something with Spark: installs a connector that is missing, and translates Spark's errors."""

    def __call__(self, action: Callable[[], T], /) -> T:
        """Return what the action returns."""


class StreamReader:
    """Reads files, topics and tables as streams; `options` are Spark's own."""

    def __init__(self, spark: SparkSession, queries: Queries, attempt: Attempt) -> None:
        self._spark = spark
        self._queries = queries
        self._attempt = attempt
        self._format: str | None = None
        self._plugin: type[SourcePlugin] | None = None
        self._options: dict[str, Any] = {}
        self._schema: Any = None

    def parquet(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """Parquet files of a folder, those that come later too."""
        return self._read("parquet", {"path": path, "schema": schema}, options)

    def csv(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """CSV files with a header; types are inferred once, unless a schema says otherwise.

        `on_bad_record` and `quarantine` are those of `kafka`.
        """
        return self._read("csv", {"path": path, "schema": schema}, options)

    def json(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """Files with a JSON object per line.

        `on_bad_record`, `quarantine` and `max_record_bytes` are those of `kafka`.
        """
        return self._read("json", {"path": path, "schema": schema}, options)

    def orc(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """ORC files."""
        return self._read("orc", {"path": path, "schema": schema}, options)

    def avro(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """Avro files; the connector is installed when it is not there yet."""
        return self._read("avro", {"path": path, "schema": schema}, options)

    def kafka(
        self,
        topic: str,
        *,
        bootstrap_servers: str | None = None,
        schema: Any = None,
        format: str | None = None,
        schema_registry: str | bool | None = None,
        schema_registry_auth: str | None = None,
        subject: str | None = None,
        starting_offsets: str = "latest",
        group: str | None = None,
        on_bad_record: str = "fail",
        quarantine: str | os.PathLike[str] | None = None,
        max_record_bytes: int | None = None,
        **options: Any,
    ) -> Stream:
        """Records of one or more topics; with a schema, the columns of their values, JSON or Avro, beside Kafka's own.

        `format="avro"` takes an Avro schema (JSON, a dictionary or the path of a file), with a schema registry also
        none: then the newest of the subject, "TOPIC-value" without one, is the schema. False as registry: plain Avro,
        whatever the settings say. With a `group`, the query commits to that consumer group after every batch how far
        it has read, for tools that show lag. A value that does not fit the schema, or is larger than
        `max_record_bytes`, fails the query (`fail`), is dropped and counted (`drop`) or is stored elsewhere
        (`quarantine`: a folder, an Iceberg table, or "topic:NAME").
        """
        arguments = {
            "topic": topic,
            "bootstrap_servers": bootstrap_servers,
            "schema": schema,
            "format": format,
            "schema_registry": schema_registry,
            "schema_registry_auth": schema_registry_auth,
            "subject": subject,
            "starting_offsets": starting_offsets,
            "group": group,
            "on_bad_record": on_bad_record,
            "quarantine": quarantine,
            "max_record_bytes": max_record_bytes,
        }
        return self._read("kafka", arguments, options)

    def iceberg(self, table: str, **options: Any) -> Stream:
        """The rows that are appended to an Iceberg table, beginning with those that are there."""
        return self._read("iceberg", {"table": table}, options)

    def table(self, name: str, **options: Any) -> Stream:
        """The rows of a table that can be read as a stream."""
        return self._read("table", {"table": name}, options)

    def rate(self, *, rows_per_second: int = 1, **options: Any) -> Stream:
        """Rows that Spark makes up, so many per second: a timestamp and a value."""
        return self._read("rate", {"rows_per_second": rows_per_second}, options)

    def format(self, name: str | type[SourcePlugin]) -> Self:
        """Use a source by name (one of penstock's, of another package's, or any of Spark's), or the class of a plugin."""
        self._plugin = None if isinstance(name, str) else name
        self._format = name if isinstance(name, str) else name.__name__
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
        kind = self._kind(self._format)
        location = "path" if kind is None else kind.location
        if path is not None and location is None:
            raise ConfigError(
                f"the {self._format} source has no location, got {os.fspath(path)!r}",
                code="SOURCE_OPTION_VALUE",
            )
        if self._schema is not None and kind is not None and "schema" not in option_fields(kind.Options):
            raise ConfigError(
                f"the {self._format} source has columns of its own",
                code="SOURCE_OPTION_VALUE",
                hint="leave .schema(...) out",
            )
        arguments = {"schema": self._schema} | ({} if location is None else {location: path})
        return self._read(self._format, arguments, self._options)

    def _kind(self, name: str) -> type[Source] | None:
        return source_of(name) if self._plugin is None else source_class(self._plugin, name)

    def _read(self, name: str, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> Stream:
        """The stream of a source; arguments that are None are those that the user left out."""
        settings = self._queries.settings
        values = {**options, **{key: value for key, value in arguments.items() if value is not None}}
        kind = self._kind(name)
        return self.of(SparkSource(name, values, settings) if kind is None else kind(values, settings))

    def of(self, source: Source, context: SourceContext | None = None) -> Stream:
        """The stream of a source that is made already, as a pipeline makes it of a node; `context` says where it
        keeps what it remembers."""
        place = context or SourceContext(
            self._spark, self._queries.settings, temporary_folder=self._queries.temporary_folder
        )
        read = self._attempt(lambda: source.read(place))
        if read.bad_records is None:
            return Stream(self._queries, read.frame)
        self._queries.taps.add(read.bad_records)
        return Stream(self._queries, read.frame, taps=(read.bad_records,))
