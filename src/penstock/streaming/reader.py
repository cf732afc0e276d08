"""Where streams come from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from penstock.errors import ConfigError
from penstock.sources import files, kafka
from penstock.sources.bad_record import BadPoint, BadRecords
from penstock.spark.micro_batch import frames
from penstock.streaming.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.streaming.queries import Queries

T = TypeVar("T")

BAD_OPTIONS = ("on_bad_record", "quarantine", "max_record_bytes")


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
        """CSV files with a header; types are inferred once, unless a schema says otherwise.

        `on_bad_record` and `quarantine` are those of `kafka`.
        """
        return self._files("csv", path, schema, options)

    def json(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """Files with a JSON object per line.

        `on_bad_record`, `quarantine` and `max_record_bytes` are those of `kafka`.
        """
        return self._files("json", path, schema, options)

    def orc(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """ORC files."""
        return self._files("orc", path, schema, options)

    def avro(self, path: str | os.PathLike[str], *, schema: Any = None, **options: Any) -> Stream:
        """Avro files; the connector is installed when it is not there yet."""
        return self._files("avro", path, schema, options)

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

        `format="avro"` takes an Avro schema (JSON, a dictionary or the path of a file), with a schema registry also none: then the
        newest of the subject, "TOPIC-value" unless told, is the schema. False as registry: plain Avro, whatever the settings say.
        With a `group`, that consumer group is told after every batch how far the query has read, for tools that show lag.
        A value that does not fit the schema, or is larger than `max_record_bytes`, ends the query (`fail`), is left out and
        counted (`drop`) or is kept at a place of its own (`quarantine`: a folder, an Iceberg table, or "topic:NAME").
        """
        rule = BadRecords.of(on_bad_record, quarantine, max_record_bytes)
        given = kafka.options(
            self._spark,
            topic=topic,
            bootstrap_servers=bootstrap_servers,
            starting_offsets=starting_offsets,
            group=group,
            options=options,
        )
        frame = self._attempt(lambda: self._spark.readStream.format("kafka").options(**given).load())
        values = kafka.Format(format, schema, schema_registry, schema_registry_auth, subject)
        decoder = self._attempt(lambda: values.decoder(self._spark, topic))
        if decoder is not None:
            return self._split(lambda: kafka.decoded(frame, decoder, rule, given))
        if rule.max_bytes is not None:
            return self._split(lambda: kafka.limited(frame, rule, given))
        if rule.action != "fail":
            raise ConfigError(
                f'on_bad_record="{rule.action}" needs to know what a good record is',
                code="SOURCE_OPTION_VALUE",
                hint='give a schema="id BIGINT, ...", or max_record_bytes=...',
            )
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
        place = os.fspath(path)
        asked = {name: options[name] for name in BAD_OPTIONS if name in options}
        rest = {name: value for name, value in options.items() if name not in BAD_OPTIONS}
        rule = BadRecords.of(
            asked.get("on_bad_record", "fail"), asked.get("quarantine"), asked.get("max_record_bytes")
        )
        if files.decided_by_spark(form, asked, rest):
            return self._stream(
                lambda: frames.of_files(self._spark, form, place, schema=schema, options=rest)
            )
        if not files.has_lines(form, rest):
            files.refuse_without_lines(rule)
            strict = {**rest, "mode": "FAILFAST"}
            return self._stream(
                lambda: frames.of_files(self._spark, form, place, schema=schema, options=strict)
            )
        read = files.json_lines if form == "json" else files.csv_rows
        return self._split(lambda: read(self._spark, place, schema=schema, options=rest, rule=rule))

    def _split(self, action: Callable[[], tuple[DataFrame, BadPoint]]) -> Stream:
        frame, point = self._attempt(action)
        self._queries.taps.add(point)
        return Stream(self._queries, frame, taps=(point,))

    def _stream(self, action: Callable[[], DataFrame]) -> Stream:
        return Stream(self._queries, self._attempt(action))
